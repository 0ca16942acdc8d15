"""Open-loop traffic on a router's gRPC door: every answer is checked, and what became of every call is kept.

async with Traffic(address, mixed("numbers")) as traffic:
    await traffic.flowing()             # answers come
    ...a fault...
    await traffic.clean()               # so many answers in a row, all right
traffic.check(allowed={"UNAVAILABLE"})  # never a wrong, late or missing answer; errors only of these codes
"""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple, Self

import grpc.aio

from inference import grpc_service_pb2 as pb
from tests.support import numbered

MODEL_INFER = "/inference.GRPCInferenceService/ModelInfer"
NEVER = "NEVER ANSWERED"
DEADLINE_S = 3.0
LATE_S = 2.0  # past its deadline, on a busy machine
_PATIENCE_S = 15.0  # of a caller who leaves the deadline to the mesh
_TICK_S = 0.01
_CLEAN_S = 45.0
_CHANNEL = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.enable_retries", 0),  # what the mesh does not answer is seen
]


class Ask(NamedTuple):
    """One call, and what is wrong with an answer to it ("" = nothing). `sets_deadline`: else the model's spec does.

    `deadline_s` is the call's own (0 = that of the traffic); it is left after `leaves_after_s` (0 = never).
    """

    request: pb.ModelInferRequest
    fault: Callable[[pb.ModelInferResponse], str]
    key: str = ""
    sets_deadline: bool = True
    deadline_s: float = 0
    leaves_after_s: float = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one call."""

    key: str
    code: str  # OK, the name of a status, or NEVER
    message: str
    sent_s: float  # since the traffic began
    took_s: float
    version: str = ""
    fault: str = ""  # of an answer
    over_s: float = 0  # how long after its deadline it ended


def mixed(model: str, versions: AbstractSet[str] = frozenset({"1"})) -> Callable[[int], Ask]:
    """One row, some, and more than a batch holds; with routing key, without, and for a version by name."""
    named = sorted(versions)

    def ask(number: int) -> Ask:
        kind = number % 8
        rows = {5: 8, 6: 100}.get(kind, 1)
        values = numbered.numbers(number * 128, rows)
        version = named[number % len(named)] if kind == 7 else ""
        allowed = frozenset({version}) if version else versions
        return Ask(
            numbered.request(model, values, version),
            lambda response: numbered.fault(response, values, allowed),
            key=f"user-{number % 500}" if kind < 5 else "",
            sets_deadline=kind % 2 == 0,
        )

    return ask


class Traffic:
    """`rate` calls a second while inside, by two callers for each address; leaving waits for the outcome of each.

    Nothing is sent while `most_in_flight` have no outcome yet: what is slow then is not the caller itself.
    """

    def __init__(
        self,
        address: str | Sequence[str],
        ask: Callable[[int], Ask],
        *,
        rate: float = 200,
        deadline_s: float = DEADLINE_S,
        most_in_flight: int = 1 << 30,
    ) -> None:
        self._most_in_flight = most_in_flight
        self.outcomes: list[Outcome] = []
        self.rate = rate
        self._addresses = [address] if isinstance(address, str) else list(address)
        self._ask = ask
        self._deadline_s = deadline_s
        self._calls: set[asyncio.Task[None]] = set()
        self._streak = 0
        self._grown = asyncio.Event()
        self._began = 0.0

    async def __aenter__(self) -> Self:
        self._began = time.monotonic()
        self._channels = [grpc.aio.insecure_channel(each, options=_CHANNEL) for each in 2 * self._addresses]
        self._infer = [channel.unary_unary(MODEL_INFER, None, None) for channel in self._channels]
        self._pace = asyncio.create_task(self._send_for_ever(), name="traffic")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def end(self) -> None:
        """Send nothing more, and return when every call has its outcome; leaving does the same."""
        self._pace.cancel()
        if self._calls:
            await asyncio.wait(self._calls, timeout=_PATIENCE_S + LATE_S)
        for call in self._calls:
            call.cancel()
        await asyncio.gather(self._pace, *self._calls, return_exceptions=True)
        for channel in self._channels:
            await channel.close(None)

    def now_s(self) -> float:
        """On the clock of Outcome.sent_s."""
        return time.monotonic() - self._began

    async def reached(self, count: int) -> None:
        """Return after `count` outcomes in all."""
        while len(self.outcomes) < count:
            await self.flowing(min(100, count - len(self.outcomes)))

    async def flowing(self, count: int = 100) -> None:
        """Return after `count` further outcomes, whatever they are."""
        wanted = len(self.outcomes) + count
        await self._until(f"{count} outcomes", lambda: len(self.outcomes) >= wanted)

    async def clean(self, count: int = 200) -> None:
        """Return after `count` right answers in a row from now on."""
        self._streak = 0
        await self._until(f"{count} right answers in a row", lambda: self._streak >= count)

    async def failing(self, count: int = 1) -> None:
        """Return after `count` further calls failed."""
        wanted = len(self.failed()) + count
        await self._until(f"{count} errors", lambda: len(self.failed()) >= wanted)

    def answered(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.code == "OK"]

    def failed(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.code != "OK"]

    def quantile_s(self, share: float, since_s: float = 0, until_s: float = float("inf")) -> float:
        """The latency that `share` of the answered calls sent in that time did not exceed."""
        took = sorted(outcome.took_s for outcome in self.answered() if since_s <= outcome.sent_s < until_s)
        return took[min(len(took) - 1, int(share * len(took)))]

    def check(self, allowed: AbstractSet[str] = frozenset(), *, most: float = float("inf")) -> None:
        """No wrong answer, none late, none missing; at most `most` errors, of `allowed` codes, each with a message."""
        summary = self.summary()
        assert [outcome for outcome in self.outcomes if outcome.fault] == [], summary
        assert [outcome for outcome in self.outcomes if outcome.code == NEVER] == [], summary
        late = [outcome for outcome in self.outcomes if outcome.over_s > LATE_S]
        assert late == [], f"{late[:3]}\n{summary}"
        assert [outcome for outcome in self.failed() if outcome.code not in allowed] == [], summary
        assert [outcome for outcome in self.failed() if not outcome.message] == [], summary
        assert len(self.failed()) <= most, summary
        assert self.answered(), summary

    def summary(self) -> str:
        """Counts by code and message, for a person."""
        seen = Counter((outcome.code, _plain(outcome.message)) for outcome in self.outcomes)
        lines = [f"{count} {code} {message}".rstrip() for (code, message), count in seen.most_common(20)]
        slow = max((outcome.took_s for outcome in self.outcomes), default=0)
        return "\n".join([f"{len(self.outcomes)} calls, the slowest took {slow:.2f} s", *lines])

    async def _until(self, what: str, check: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(_CLEAN_S):
                while not check():
                    self._grown.clear()
                    await self._grown.wait()
        except TimeoutError:
            raise AssertionError(f"{what}: not within {_CLEAN_S:g} s\n{self.summary()}") from None

    async def _send_for_ever(self) -> None:
        sent, numbers = 0, itertools.count()
        while True:
            # What was missed while the machine was busy is left out: a burst would be another test. No number is.
            due = int(self.now_s() * self.rate)
            room = max(0, self._most_in_flight - len(self._calls))
            for _, number in zip(range(max(sent, due - min(room, int(self.rate / 4))), due), numbers, strict=False):
                task = asyncio.create_task(self._call(number), name=f"call-{number}")
                self._calls.add(task)
                task.add_done_callback(self._calls.discard)
            sent = due
            await asyncio.sleep(_TICK_S)

    async def _call(self, number: int) -> None:
        ask = self._ask(number)
        began, sent_s = time.monotonic(), self.now_s()
        deadline_s = ask.deadline_s or self._deadline_s
        metadata = [("x-routing-key", ask.key)] if ask.key else []
        call = self._infer[number % len(self._infer)](
            ask.request.SerializeToString(),
            timeout=deadline_s if ask.sets_deadline else _PATIENCE_S,
            metadata=metadata,
        )
        if ask.leaves_after_s:
            asyncio.get_running_loop().call_later(ask.leaves_after_s, call.cancel)
        response = pb.ModelInferResponse()
        code = (await call.code()).name  # unlike `await call`, a call that was cancelled has one too
        took_s = time.monotonic() - began
        if code == "OK":
            response = pb.ModelInferResponse.FromString(await call)
        elif took_s > _PATIENCE_S - 1:
            code = NEVER
        self._keep(
            Outcome(
                ask.key,
                code,
                await call.details() or "",
                sent_s,
                took_s,
                response.model_version,
                ask.fault(response) if code == "OK" else "",
                took_s - deadline_s,
            )
        )

    def _keep(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self._streak = self._streak + 1 if outcome.code == "OK" and not outcome.fault else 0
        self._grown.set()


def _plain(message: str) -> str:
    """Without the numbers, so that messages alike count as one."""
    return "".join("#" if character.isdigit() else character for character in message)[:200]
