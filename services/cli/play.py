"""turnout play: send the demo's held-out rows through a running mesh."""

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from services.chassis.etcd import EtcdClient
from services.cli.client import GrpcClient
from services.cli.data_dir import DataDir
from services.cli.demo.held_out import HeldOut
from services.cli.demo.rounds import CONCURRENCY, Played, Turn, turns, unknown_patient
from services.cli.demo.rounds import play as play_all
from services.cli.demo.show import show_played, show_unknown
from services.cli.demo.tables import as_json
from services.cli.errors import CliError
from services.cli.options import DEFAULT_DATA_DIR, DataDirOption, JsonOption, Target
from services.cli.output import print_json, say
from services.cli.progress import step
from services.cli.shadow import fetch, show_candidate

_SHADOW_S = 10.0  # waited for the comparator to have seen what was mirrored
_SETTLED_S = 1.0  # without news
_POLL_S = 0.1


def play(
    *,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    address: Annotated[str, typer.Option("--grpc", help="The router's gRPC address, HOST:PORT.")] = "",
    json: JsonOption = False,
) -> None:
    """Send the demo's held-out rows and print what came back. Example: turnout play."""
    played = asyncio.run(_play(Target(data_dir).router(address, "GRPC_ADDRESS"), load_turns(DataDir(data_dir))))
    if json:
        print_json(as_json(played))
    else:
        show_played(played)
    raise_if_failed(played)


async def demonstrate(address: str, client: EtcdClient, todo: Sequence[Turn]) -> list[Played]:
    """Play everything and print it, with what a comparator made of it."""
    with step(f"Sending {len(todo)} held-out rows, {CONCURRENCY} at a time"):
        async with GrpcClient(address) as router:
            played = await play_all(router, todo)
            unknown = await unknown_patient(router)
    show_played(played)
    show_unknown(unknown)
    await _show_shadow(client)
    return played


def load_turns(data: DataDir) -> list[Turn]:
    """What there is to send. Raises CliError when the demo was never made here."""
    try:
        return turns(HeldOut.load(data.demo / "held_out.npz"))
    except (OSError, ValueError, KeyError):
        raise CliError(f"{data.root} has no demo: `turnout up` makes it") from None


def raise_if_failed(played: Sequence[Played]) -> None:
    """Raises CliError when a request got no answer, or the ranker a wrong one."""
    failed = [each for each in played if each.answer is None or (each.turn.expected is None and not each.is_right)]
    if failed:
        raise CliError(
            f"{len(failed)} of {len(played)} requests failed; the first, {failed[0].turn.name}: {failed[0].predicted}"
        )


async def _play(address: str, todo: Sequence[Turn]) -> list[Played]:
    async with GrpcClient(address) as router:
        return await play_all(router, todo)


async def _show_shadow(client: EtcdClient) -> None:
    """Print the comparison once it stands still: mirrors arrive after the answers."""
    deadline = time.monotonic() + _SHADOW_S
    seen, since = -1, time.monotonic()
    try:
        while True:
            candidates = await fetch(client)
            compared = sum(each.compared + sum(each.errors.values()) for each in candidates)
            now = time.monotonic()
            seen, since = (seen, since) if compared == seen else (compared, now)
            if now > deadline or (compared and now - since > _SETTLED_S):
                break
            await asyncio.sleep(_POLL_S)
    except CliError as error:
        say(str(error))
        return
    if not candidates:
        say("the shadow comparator has compared nothing")
    for each in candidates:
        show_candidate(each)
