"""Weights whose network is code: a state dict, or a safetensors file, with a file network.py beside it.

    import torch

    def network():
        "The torch.nn.Module that the weights belong to."
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))

The code runs, so the model's spec must say `trusted`; of the weights nothing runs, they are read as such only.
"""

import inspect
import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from services.runtime.backends import BadArtifactError
from services.runtime.backends.python_file import definition
from services.runtime.backends.torch_files import NETWORK, WEIGHTS_HINT
from services.runtime.backends.torch_program import Argument, Program

_FUNCTION = "network"
_WRAPPED = ("state_dict", "model_state_dict")  # where training programs keep it beside other things
_SAFE_DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32,
    "I64": torch.int64, "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64,
}  # fmt: skip


def open_network(artifact: Path, *, trusted: bool, device: str, compile_: Callable[[Any], Any]) -> Program:
    """`compile_` gives what runs in place of the network. Raises BadArtifactError."""
    weights = _safetensors(artifact) if artifact.suffix == ".safetensors" else _state_dict(artifact)
    code = artifact.with_name(NETWORK)
    if not code.is_file():
        raise BadArtifactError(f"{artifact.name} has weights and no network: {WEIGHTS_HINT}")
    if not trusted:
        raise BadArtifactError(
            f"{NETWORK} is code and would run when loaded: set trusted in the model's spec if you know where it"
            " comes from"
        )
    function = definition(code, _FUNCTION)
    network = function() if callable(function) else None
    if not isinstance(network, torch.nn.Module):
        raise BadArtifactError(
            f"{NETWORK}: expected a function {_FUNCTION}() that gives a torch.nn.Module, found {type(network).__name__}"
        )
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise BadArtifactError(f"{artifact.name} does not fit the network of {NETWORK}: {error}") from error
    network = network.eval().requires_grad_(requires_grad=False).to(device)
    return Program(_arguments(network), compile_(network), "pytorch_network")


def _arguments(network: torch.nn.Module) -> tuple[Argument, ...]:
    given = inspect.signature(network.forward).parameters.values()
    named = [each for each in given if each.kind not in {each.VAR_POSITIONAL, each.VAR_KEYWORD}]
    return tuple(Argument(each.name, is_optional=each.default is not each.empty) for each in named)


def _state_dict(artifact: Path) -> Mapping[str, torch.Tensor]:
    try:
        found = torch.load(artifact, map_location="cpu", weights_only=True)
    except Exception as error:
        raise BadArtifactError(
            f"{artifact.name}: expected weights (a state dict), found a pickle with code of its own, or damaged data:"
            f" {WEIGHTS_HINT}"
        ) from error
    for name in _WRAPPED:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    if not isinstance(found, Mapping) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise BadArtifactError(
            f"{artifact.name}: expected a state dict, found a {type(found).__name__}: {WEIGHTS_HINT}"
        )
    return found


def _safetensors(artifact: Path) -> Mapping[str, torch.Tensor]:
    """Its header says, in JSON, of what type and shape each tensor is, and where its bytes are."""
    data = artifact.read_bytes()
    try:
        (size,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + size])
        body = memoryview(data)[8 + size :]
        found = {}
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                dtype = _SAFE_DTYPES[entry["dtype"]]
                flat = torch.frombuffer(bytearray(body[begin:end]), dtype=dtype) if end > begin else torch.empty(0)
                found[name] = flat.to(dtype).reshape(entry["shape"])
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise BadArtifactError(
            f"{artifact.name}: expected a whole safetensors file, found {len(data)} bytes that are none: {error}"
        ) from error
    return found
