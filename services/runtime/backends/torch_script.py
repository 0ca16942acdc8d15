"""TorchScript: frozen, run without specialising it for shapes, and with its state noticed where it keeps any."""

import copy
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from services.runtime.backends import BadArtifactError
from services.runtime.backends.torch_files import Form, has_example, refusal
from services.runtime.backends.torch_program import Argument, Program
from services.runtime.backends.torch_values import DATATYPES

_NUMBERS = {"IntType": "INT64", "FloatType": "FP64", "BoolType": "BOOL"}

# By default a first call is profiled, and later ones are compiled again for what it saw: 7 and 12 ms in the middle of
# traffic for three layers, and none is faster for it on a processor.
torch._C._jit_set_num_profiled_runs(0)  # type: ignore[arg-type]  # noqa: SLF001 - there is no other way
_MOST_FROZEN_BYTES = 1 << 30  # it takes as much memory again while it loads


def open_script(artifact: Path, device: str) -> Program:
    """Raises BadArtifactError."""
    try:
        module = torch.jit.load(str(artifact), map_location=device, _restore_shapes=has_example(artifact))
    except (RuntimeError, ValueError, OSError) as error:
        raise refusal(artifact, Form.SCRIPT, error) from error
    module.eval()
    arguments = _arguments(artifact, module)
    frozen = _frozen(artifact, module)
    graph = frozen.inlined_graph
    aliases = graph.alias_db()
    attributes = [node.output() for node in graph.findAllNodes("prim::GetAttr", True)]
    is_stateful = bool(graph.findAllNodes("prim::SetAttr", True)) or any(map(aliases.has_writers, attributes))
    tensors = list(graph.inputs())[1:]
    may_write = is_stateful or bool(attributes) or any(map(aliases.has_writers, tensors))

    def renew() -> Callable[..., Any]:
        call: Callable[..., Any] = copy.deepcopy(frozen).forward
        return call

    return Program(arguments, frozen.forward, "pytorch_libtorch", may_write, renew if is_stateful else None)


def _frozen(artifact: Path, module: Any) -> Any:
    """The module with its weights as constants, so that layers are folded into one another where that is possible.

    Not torch.jit.optimize_for_inference: it gains 7 of 27 µs for three layers, and a convolution under varying shapes
    takes four times as long with it.
    """
    if artifact.stat().st_size > _MOST_FROZEN_BYTES:
        return module
    written = io.BytesIO()
    try:
        torch.jit.save(torch.jit.freeze(module), written)
    except RuntimeError:  # some code cannot be frozen: it runs as it is
        return module
    # Read again: torch 2.13 may crash where an operator of a module just frozen raises.
    written.seek(0)
    return torch.jit.load(written)


def _arguments(artifact: Path, module: Any) -> tuple[Argument, ...]:
    if not hasattr(module, "forward"):
        raise BadArtifactError(f"{artifact.name}: expected TorchScript with a method forward, found none")
    types = [value.type() for value in module.graph.inputs()][1:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schema = module.forward.schema.arguments[1:]
    return tuple(_argument(artifact, each, kind) for each, kind in zip(schema, types, strict=True))


def _argument(artifact: Path, argument: Any, kind: Any) -> Argument:
    has_default = argument.has_default_value()
    name, wanted = argument.name, argument.type
    if wanted.kind() == "OptionalType":
        wanted = wanted.getElementType()
    if wanted.kind() in _NUMBERS:
        return Argument(name, _NUMBERS[wanted.kind()], (), is_optional=has_default, is_number=True)
    if wanted.kind() == "TensorType":
        sizes, dtype = (kind.sizes(), kind.dtype()) if kind.kind() == "TensorType" else (None, None)
        if sizes is None or dtype is None:
            return Argument(name, is_optional=has_default)
        return Argument(name, DATATYPES.get(dtype), tuple(sizes), is_optional=has_default, is_example=True)
    if has_default:
        return Argument(name, is_optional=True)
    raise BadArtifactError(
        f"{artifact.name}: argument {name!r} of forward is a {argument.type}; expected tensors and numbers: wrap the"
        " model in one whose forward takes those"
    )
