"""Programs of torch.export, and packages that AOTInductor compiled from them."""

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.export.passes import move_to_device_pass
from torch.utils import _pytree as pytree

from services.runtime.backends import BadArtifactError
from services.runtime.backends.torch_files import Form, refusal
from services.runtime.backends.torch_program import Argument, Program
from services.runtime.backends.torch_values import DATATYPES

_NAMED = {str(dtype).removeprefix("torch."): datatype for dtype, datatype in DATATYPES.items()}
_CHECK = re.compile(r"static void check_input_(\d+)\((.*?)^\}", re.DOTALL | re.MULTILINE)
_DTYPE = re.compile(r"expected_dtype = aoti_torch_dtype_(\w+)\(\)")
_SIZE = re.compile(r"\((\d+) != \w+_size\[(\d+)\]\)")
_MENTION = re.compile(r"_(?:size|stride)\[(\d+)\]")


def open_exported(artifact: Path, device: str, compile_: Callable[[Any], Any]) -> Program:
    """`compile_` gives what runs in place of the program's module. Raises BadArtifactError."""
    try:
        program = torch.export.load(str(artifact))
        if device != "cpu":
            program = move_to_device_pass(program, device)
        module = compile_(program.module())
    except Exception as error:
        raise refusal(artifact, Form.EXPORTED, error) from error
    arguments, constants = _arguments(artifact, program)
    return Program(arguments, _call(module, program.call_spec.in_spec, constants), "pytorch_export", _writes(program))


def open_compiled(artifact: Path) -> Program:
    """Raises BadArtifactError."""
    try:
        model = torch._inductor.aoti_load_package(str(artifact))  # noqa: SLF001 - as torch documents it
        in_spec = pytree.treespec_loads(model.loader.get_call_spec()[0])
    except Exception as error:
        raise refusal(artifact, Form.COMPILED, error) from error
    told = _checks(artifact)
    positional, named = in_spec.children()
    names = [f"input_{position}" for position in range(positional.num_leaves)]
    if named.num_leaves == len(named.context):  # a tensor each
        names += named.context
    else:
        names += [f"input_{position}" for position in range(len(names), in_spec.num_leaves)]
    arguments = [Argument(name, *told.get(position, (None, None))) for position, name in enumerate(names)]
    return Program(tuple(arguments), _call(model, in_spec, {}), "pytorch_aoti")


def _arguments(artifact: Path, program: Any) -> tuple[tuple[Argument, ...], dict[int, Any]]:
    """What callers give, and constants of the program by their place among all that it takes."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    given = [spec.arg for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    constants = {at: arg.value for at, arg in enumerate(given) if isinstance(arg, ConstantArgument)}
    taken = [arg.name for arg in given if not isinstance(arg, ConstantArgument)]
    return tuple(_argument(artifact, name, values[name]) for name in taken), constants


def _argument(artifact: Path, name: str, value: Any) -> Argument:
    if not isinstance(value, torch.Tensor):
        kinds = {torch.SymInt: "INT64", torch.SymFloat: "FP64", torch.SymBool: "BOOL"}
        return Argument(name, kinds.get(type(value)), (), is_number=True)
    if value.dtype not in DATATYPES:
        raise BadArtifactError(
            f"{artifact.name}: input {name!r} is {value.dtype}; expected one of {', '.join(map(str, DATATYPES))}"
        )
    return Argument(name, DATATYPES[value.dtype], tuple(size if type(size) is int else -1 for size in value.shape))


def _call(module: Any, in_spec: Any, constants: dict[int, Any]) -> Callable[..., Any]:
    """Takes one value after the other, and calls with the structure that the program was exported with."""
    count = in_spec.num_leaves
    positional, named = in_spec.children()
    is_flat = not constants and not named.num_leaves and all(child.is_leaf() for child in positional.children())
    if is_flat:
        return module  # type: ignore[no-any-return]

    def call(*values: Any) -> Any:
        rest = iter(values)
        leaves = [constants[at] if at in constants else next(rest) for at in range(count)]
        args, kwargs = pytree.tree_unflatten(leaves, in_spec)
        return module(*args, **kwargs)

    return call


def _writes(program: Any) -> bool:
    signature = program.graph_signature
    return bool(signature.user_inputs_to_mutate or signature.buffers_to_mutate)


def _checks(artifact: Path) -> dict[int, tuple[str | None, tuple[int, ...] | None]]:
    """Datatype and shape by input, from the checks that the compiler wrote into the package's source.

    What is not there must be declared.
    """
    with zipfile.ZipFile(artifact) as archive:
        sources = [name for name in archive.namelist() if name.endswith(".wrapper.cpp")]
        text = archive.read(sources[0]).decode(errors="replace") if len(sources) == 1 else ""
    return {int(number): _check(body) for number, body in _CHECK.findall(text)}


def _check(body: str) -> tuple[str | None, tuple[int, ...] | None]:
    dtype = _DTYPE.search(body)
    rank = 1 + max(map(int, _MENTION.findall(body)), default=-1)
    fixed = {int(at): int(size) for size, at in _SIZE.findall(body)}
    shape = tuple(fixed.get(at, -1) for at in range(rank))
    return (_NAMED.get(dtype[1]), shape) if dtype else (None, None)
