"""turnout predict: one request to a model."""

import asyncio
from contextlib import AsyncExitStack
from typing import Annotated, Any

import typer

from services.cli.client import Answer, Ask, GrpcClient, RefusedError, RestClient
from services.cli.inputs import fit, parse_inputs, parse_parameters
from services.cli.options import DEFAULT_DATA_DIR, DataDirOption, JsonOption, Target
from services.cli.output import print_json, say, show, table

_SHOWN = 8  # values of a row


def predict(  # noqa: PLR0913 - a parameter for each option
    model: Annotated[str, typer.Argument(help="The model's name.")],
    *,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", help="NAME=@FILE.npy, NAME=@FILE.json, NAME=JSON.")
    ] = None,
    param: Annotated[list[str] | None, typer.Option("--param", help="Request parameter NAME=VALUE.")] = None,
    key: Annotated[str, typer.Option(help="Routing key: the same key gets the same version.")] = "",
    version: Annotated[str, typer.Option(help="A version or label, instead of what the route says.")] = "",
    use_rest: Annotated[bool, typer.Option("--rest/--grpc", help="Which protocol to speak.")] = False,
    address: Annotated[
        str, typer.Option(help="The router as HOST:PORT; default: that of the mesh in --data-dir.")
    ] = "",
    timings: Annotated[bool, typer.Option("--timings", help="Show where the time went.")] = False,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    json: JsonOption = False,
) -> None:
    """Ask a model. Example: turnout predict digits --input x=@.turnout/demo/digit.npy --param user_id=ana."""
    ask = Ask(model, parse_inputs(inputs or []), parse_parameters(param or []), version, key, timings)
    router = Target(data_dir).router(address, "REST_ADDRESS" if use_rest else "GRPC_ADDRESS")
    answer = asyncio.run(_ask(ask, router, use_rest=use_rest))
    if json:
        print_json(_as_json(answer))
    else:
        _show(model, answer)


async def _ask(ask: Ask, router: str, *, use_rest: bool) -> Answer:
    async with AsyncExitStack() as stack:
        client: GrpcClient | RestClient = await stack.enter_async_context(
            RestClient(router) if use_rest else GrpcClient(router)
        )
        if not ask.inputs:
            return await client.infer(ask)
        try:
            wanted = await client.inputs_of(ask.model, ask.version)
        except RefusedError:
            wanted = []  # the request itself gets the better message
        fitting = Ask(ask.model, fit(ask.inputs, wanted), ask.parameters, ask.version, ask.key, ask.timings)
        return await client.infer(fitting)


def _show(model: str, answer: Answer) -> None:
    arm = f", {answer.arm}" if answer.arm else ""
    say(f"{model} version {answer.version}{arm}, {answer.latency_ms:.2f} ms")
    rows = [(name, str(list(array.shape)), _values(array)) for name, array in answer.outputs.items()]
    show(table("", ("output", "shape", "values"), rows))
    if answer.stages_ms:
        show(table("", ("stage", "ms"), [(name, f"{ms:.3f}") for name, ms in answer.stages_ms.items()], ("ms",)))


def _values(array: Any) -> str:
    shown = [_one(value) for value in array.ravel()[:_SHOWN]]
    return ", ".join(shown) + (" …" if array.size > _SHOWN else "")


def _one(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return f"{value:.6g}" if isinstance(value, float) or getattr(value, "dtype", None) is not None else str(value)


def _as_json(answer: Answer) -> dict[str, Any]:
    return {
        "model_version": answer.version,
        "arm": answer.arm,
        "latency_ms": answer.latency_ms,
        "stages_ms": answer.stages_ms,
        "outputs": {name: _plain(array) for name, array in answer.outputs.items()},
    }


def _plain(array: Any) -> Any:
    if array.dtype.kind == "O":
        return [value.decode(errors="replace") if isinstance(value, bytes) else value for value in array.ravel()]
    return array.tolist()
