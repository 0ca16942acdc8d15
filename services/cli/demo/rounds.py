"""Plays the held-out rows through the router and keeps what came back."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from services.cli.client import Answer, Ask, GrpcClient, RefusedError
from services.cli.demo.held_out import HeldOut
from services.cli.demo.keys import ENTITY, USER

CONCURRENCY = 16
UNKNOWN_PATIENT = 9999
SCORE_TOLERANCE = 1e-4  # the ranker's answers are compared with numpy's
_CANDIDATES = 4  # rows of one ranker request
_SHOWN = 2  # scores


@dataclass(frozen=True, slots=True)
class Turn:
    """One request and what is right for it: a class, or scores."""

    name: str  # of the row, for people
    ask: Ask
    expected: int | None
    scores: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Played:
    """A turn and its outcome."""

    turn: Turn
    answer: Answer | None
    error: str = ""

    @property
    def predicted(self) -> str:
        if self.answer is None:
            return self.error
        if self.turn.expected is None:
            return in_words(self.answer.outputs["y"].ravel().tolist())
        return str(self.answer.outputs["label"].ravel()[0])

    @property
    def is_right(self) -> bool:
        if self.answer is None:
            return False
        if self.turn.expected is None:
            scores = self.answer.outputs["y"].ravel()
            return bool(np.allclose(scores, self.turn.scores, atol=SCORE_TOLERANCE))
        return int(self.answer.outputs["label"].ravel()[0]) == self.turn.expected


def in_words(scores: Sequence[float]) -> str:
    """The first scores of several."""
    return ", ".join(f"{score:.4f}" for score in scores[:_SHOWN]) + (" …" if len(scores) > _SHOWN else "")


def turns(rows: HeldOut) -> list[Turn]:
    """Every held-out row as a request: images one by one, patients by number, candidates in small groups."""
    return [*_digits(rows), *_patients(rows), *_candidates(rows)]


async def play(client: GrpcClient, todo: Sequence[Turn], concurrency: int = CONCURRENCY) -> list[Played]:
    """All outcomes, in the order of `todo`; `concurrency` requests are under way at any time."""
    outcomes: list[Played | None] = [None] * len(todo)
    queue = iter(enumerate(todo))
    async with asyncio.TaskGroup() as tasks:
        for _ in range(concurrency):
            tasks.create_task(_work(client, queue, outcomes))
    return [outcome for outcome in outcomes if outcome is not None]


async def unknown_patient(client: GrpcClient) -> Played:
    """What the router says about a patient whom nobody knows."""
    ask = Ask("tumor", {}, {ENTITY: UNKNOWN_PATIENT})
    return await _one(client, Turn(f"patient {UNKNOWN_PATIENT}", ask, expected=0))


async def _work(client: GrpcClient, queue: Iterable[tuple[int, Turn]], outcomes: list[Played | None]) -> None:
    for position, turn in queue:
        outcomes[position] = await _one(client, turn)


async def _one(client: GrpcClient, turn: Turn) -> Played:
    try:
        return Played(turn, await client.infer(turn.ask))
    except RefusedError as error:
        return Played(turn, None, str(error))


def _digits(rows: HeldOut) -> Iterator[Turn]:
    for number, (pixels, label) in enumerate(zip(rows.digits, rows.digit_labels.tolist(), strict=True)):
        user = f"user-{number}"
        ask = Ask("digits", {"x": pixels[np.newaxis]}, {USER: user}, timings=True)
        yield Turn(f"image {number}, {user}", ask, label)


def _patients(rows: HeldOut) -> Iterator[Turn]:
    for patient, label in zip(rows.patients.tolist(), rows.patient_labels.tolist(), strict=True):
        yield Turn(f"patient {patient}", Ask("tumor", {}, {ENTITY: patient}, timings=True), label)


def _candidates(rows: HeldOut) -> Iterator[Turn]:
    for begin in range(0, len(rows.candidates), _CANDIDATES):
        some = slice(begin, begin + _CANDIDATES)
        ask = Ask("ranker", {"x": rows.candidates[some]}, {}, timings=True)
        yield Turn(f"candidates {begin}…", ask, None, tuple(rows.scores[some].tolist()))
