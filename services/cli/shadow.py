"""turnout shadow: how candidates answer beside what was served."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import grpc.aio
import typer

from services.chassis.etcd import EtcdClient
from services.cli.errors import CliError
from services.cli.options import DEFAULT_DATA_DIR, DataDirOption, EtcdOption, JsonOption, PrefixOption, Target
from services.cli.output import print_json, say, show, table
from services.cli.security import service_channel
from services.core import keys
from services.core.registry import ServiceRecord
from turnout.v1 import shadow_pb2 as pb
from turnout.v1.shadow_pb2_grpc import ShadowStub

app = typer.Typer(help="Candidates that run beside what is served.", no_args_is_help=True, rich_markup_mode=None)
_TIMEOUT_S = 5.0
_COLUMNS = ("output", "kind", "rows", "agreeing", "mean difference", "largest")
_NUMBERS = ("rows", "agreeing", "mean difference", "largest")


@app.command("report")
def report(
    model: Annotated[str, typer.Argument(help="One model; default: all.")] = "",
    *,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    etcd: EtcdOption = "",
    etcd_prefix: PrefixOption = "",
    json: JsonOption = False,
) -> None:
    """Compare candidates with what was served, so far. Example: turnout shadow report digits."""
    candidates = asyncio.run(_report(Target(data_dir, etcd, etcd_prefix), model))
    if json:
        print_json([as_json(each) for each in candidates])
        return
    if not candidates:
        say(f"nothing was compared yet{f' for {model}' if model else ''}: does a route name a shadow version?")
    for each in candidates:
        show_candidate(each)


async def fetch(client: EtcdClient, model: str = "") -> list[pb.CandidateReport]:
    """The reports of every comparator that etcd knows. Raises CliError when there is none, or none answers."""
    listing = await client.list(f"{keys.SERVICES}shadow/")
    records = [ServiceRecord.parse(entry.value) for entry in listing.entries.values()]
    addresses = [record.address for record in records if record.address and record.state != "draining"]
    if not addresses:
        raise CliError("no shadow comparator runs: `python -m services.shadow` starts one")
    answers = await asyncio.gather(*(_ask(address, model) for address in addresses), return_exceptions=True)
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    if len(errors) == len(answers):
        raise errors[0]
    return [each for answer in answers if isinstance(answer, list) for each in answer]


def show_candidate(each: pb.CandidateReport) -> None:
    """One candidate, for people."""
    title = f"Shadow: {each.model} version {each.candidate_version} beside {each.served_version}"
    show(table(title, _COLUMNS, [_output_row(output) for output in each.outputs], _NUMBERS))
    served, candidate = each.served_latency, each.candidate_latency
    say(
        f"{each.compared} of {each.mirrored} mirrored requests compared ({each.rows} rows);"
        f" compute p50/p99 {served.p50_ms:.2f}/{served.p99_ms:.2f} ms served,"
        f" {candidate.p50_ms:.2f}/{candidate.p99_ms:.2f} ms candidate"
    )
    for what, counts in (("failed", each.errors), ("dropped", each.dropped)):
        if counts:
            say(f"{what}: {', '.join(f'{count} {name}' for name, count in sorted(counts.items()))}")
    for example in each.worst[:3]:
        say(f"most different: {example.output}: served {example.served}, candidate {example.candidate}")


def as_json(each: pb.CandidateReport) -> dict[str, Any]:
    """One candidate, for scripts."""
    latency = {"served": each.served_latency, "candidate": each.candidate_latency}
    return {
        "model": each.model,
        "served_version": each.served_version,
        "candidate_version": each.candidate_version,
        "mirrored": each.mirrored,
        "compared": each.compared,
        "rows": each.rows,
        "errors": dict(each.errors),
        "dropped": dict(each.dropped),
        "outputs": [_fields(output) for output in each.outputs],
        "latency_ms": {name: _fields(value) for name, value in latency.items()},
        "worst": [_fields(example) for example in each.worst],
    }


async def _report(target: Target, model: str) -> Sequence[pb.CandidateReport]:
    async with target.open_etcd() as client:
        return await fetch(client, model)


async def _ask(address: str, model: str) -> list[pb.CandidateReport]:
    async with service_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        stub: Any = ShadowStub(channel)
        try:
            response = await stub.Report(pb.ReportRequest(model=model), timeout=_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise CliError(f"the shadow comparator at {address} does not answer: {error.details()}") from None
        return list(response.candidates)


def _output_row(output: pb.OutputReport) -> tuple[str, ...]:
    """Equality says nothing about scores, nor a difference about classes."""
    if output.kind == "class":
        agreeing = f"{output.agreeing_rows / output.rows:.1%}" if output.rows else "-"
        return (output.name, output.kind, str(output.rows), agreeing, "-", "-")
    mean, largest = f"{output.mean_abs_difference:.4f}", f"{output.max_abs_difference:.4f}"
    return (output.name, output.kind, str(output.rows), "-", mean, largest)


def _fields(message: Any) -> dict[str, Any]:
    return {field.name: getattr(message, field.name) for field in message.DESCRIPTOR.fields}
