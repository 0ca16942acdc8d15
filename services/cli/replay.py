"""turnout replay: recorded requests again, and what differs."""

import asyncio
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from services.chassis.recordings import BadRecordingError, RecordingReader
from services.cli.errors import CliError
from services.cli.options import DEFAULT_DATA_DIR, DataDirOption, JsonOption, Target
from services.cli.output import print_json, say, show, table
from services.cli.player import Pace, Player
from services.cli.replayed import OK, Tally
from turnout.v1 import recorded_pb2


def replay(  # noqa: PLR0913 - a parameter for each option
    file: Annotated[Path, typer.Argument(help="What `turnout record` wrote.")],
    *,
    model: Annotated[str, typer.Option(help="Ask this model instead.")] = "",
    version: Annotated[str, typer.Option(help="A version or label, instead of what the route says.")] = "",
    rate: Annotated[float, typer.Option(min=0, help="So many requests a second.")] = 0,
    speed: Annotated[float, typer.Option(min=0, help="At the pace they came, times this.")] = 0,
    concurrency: Annotated[int, typer.Option(min=1, max=4096, help="At most so many at once.")] = 16,
    count: Annotated[int, typer.Option(min=0, help="Only the first so many; 0 = all.")] = 0,
    compare: Annotated[bool, typer.Option("--compare", help="Compare the answers with those recorded.")] = False,
    address: Annotated[str, typer.Option("--grpc", help="The router's gRPC address, HOST:PORT.")] = "",
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    json: JsonOption = False,
) -> None:
    """Send recorded requests again. Example: turnout replay some.recorded --version 2 --compare."""
    if rate and speed:
        raise CliError("--rate and --speed exclude each other: give one pace")
    tally = Tally(is_comparing=compare)
    router = Target(data_dir).router(address, "GRPC_ADDRESS")
    player = Player(router, tally, concurrency, model=model, version=version)
    try:
        with RecordingReader(file) as reader:
            _play(player, _first(reader, count), Pace(rate, speed))
    except OSError as error:
        raise CliError(f"{file}: {error.strerror or error}") from None
    except BadRecordingError as error:
        raise CliError(str(error)) from None
    if json:
        print_json(tally.as_json())
    else:
        _show(tally)
    _judge(tally)


def _play(player: Player, records: Iterator[recorded_pb2.Recorded], pace: Pace) -> None:
    try:
        asyncio.run(player.play(records, pace))
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


def _first(reader: RecordingReader, count: int) -> Iterator[recorded_pb2.Recorded]:
    return islice(reader, count or None)


def _show(tally: Tally) -> None:
    found = tally.as_json()
    rows = []
    for what, statuses in (("replayed", tally.statuses), ("recorded", tally.recorded)):
        latency = found["latency_ms"][what]
        failed = ", ".join(f"{count} {name}" for name, count in sorted(statuses.items()) if name != OK)
        times = [f"{latency[each]:.2f}" if latency else "-" for each in ("p50", "p90", "p99")]
        rows.append((what, str(statuses[OK]), failed or "-", *times))
    columns = ("", "answered", "failed", "p50 ms", "p90 ms", "p99 ms")
    show(table("", columns, rows, ("answered", "p50 ms", "p90 ms", "p99 ms")))
    if tally.late:
        say(f"{tally.late} left late: --concurrency was the limit")
    if tally.outputs:
        compared = [
            (name, str(each.rows), str(each.agreeing), str(each.incomparable), f"{each.max_abs:.6g}")
            for name, each in tally.outputs.items()
        ]
        names = ("output", "rows", "agreeing", "incomparable", "largest difference")
        show(table("", names, compared, names[1:]))


def _judge(tally: Tally) -> None:
    """Raises CliError when it is worse than it was."""
    if not tally.statuses:
        raise CliError("there was nothing to replay")
    if tally.newly_failed:
        raise CliError(f"{tally.newly_failed} requests failed that were answered when they were recorded")
    if tally.differing_rows:
        raise CliError(f"{tally.differing_rows} rows of outputs are not what they were")
