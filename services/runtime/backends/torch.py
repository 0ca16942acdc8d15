"""Models of PyTorch: TorchScript, programs of torch.export, packages of AOTInductor, and weights with their network.

Which of them a file is, `torch_files` tells; each is opened as a Program by a module of its own. What a program does
not tell of its inputs must be declared; what it gives is found by running it.
"""

import contextlib
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from services.core.signature import Signature, TensorSpec
from services.runtime.backends import Arrays, BadArtifactError, Options, refuse_unknown
from services.runtime.backends import torch_values as values
from services.runtime.backends.torch_cuda import Graphs, chosen_device
from services.runtime.backends.torch_export import open_compiled, open_exported
from services.runtime.backends.torch_files import Form, form_of
from services.runtime.backends.torch_network import open_network
from services.runtime.backends.torch_probe import Outputs, UnansweredError
from services.runtime.backends.torch_program import Input, Program, inputs_of
from services.runtime.backends.torch_script import open_script

_START = TensorSpec("sequence_start", "BOOL", (1,))
_COMPILERS = ("g++", "c++", "clang++")


class Model:
    """One program. BF16 goes in and comes out as its uint16 words."""

    def __init__(self) -> None:
        self._call: Callable[..., Any] | None = None
        self._renew: Callable[[], Callable[..., Any]] | None = None
        self._convert: list[tuple[str, str, values.ToValue]] = []  # input, argument, how it becomes that
        self._by_name = False
        self._outputs: Outputs

    def load(self, artifact: Path, options: Options) -> Signature:
        refuse_unknown(artifact, options.outputs, ())
        _set_threads(options.threads)
        device = chosen_device(options.device)
        with warnings.catch_warnings():  # of torch, to its own developers
            warnings.simplefilter("ignore")
            program = _open(artifact, options, device)
            return self._take(artifact, options, program, device)

    def run(self, inputs: Arrays) -> dict[str, NDArray]:
        return self._outputs.of(self._answer(inputs))

    def unload(self) -> None:
        self._call = self._renew = None

    def _take(self, artifact: Path, options: Options, program: Program, device: str) -> Signature:
        self._call = program.call if program.renew is None else program.renew()
        self._outputs = Outputs(artifact, options.declared)
        found = inputs_of(artifact, program.arguments, options.declared)
        taken = [each.argument for each in found]
        self._by_name = tuple(taken) != program.arguments[: len(taken)]
        self._convert = [(each.spec.name, each.argument.name, _converter(each, program, device)) for each in found]
        inputs, outputs = self._specs(artifact, found)
        if program.renew is not None:  # rows would share one memory
            self._renew = program.renew
            return Signature((*inputs, _START), outputs, batches=False, platform=program.platform)
        batches = bool(inputs) and all(spec.shape[:1] == (-1,) for spec in inputs + outputs)
        if options.torch.cuda_graphs:
            self._call = Graphs.of(artifact, program.call, options.torch.cuda_graphs, device, batches=batches)
        return Signature(inputs, outputs, batches, program.platform)

    def _specs(self, artifact: Path, found: list[Input]) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
        """Inputs and outputs; where the inputs are those of an example, with rows if it turns out so."""
        inputs = tuple(each.spec for each in found)
        freed = _with_rows(found)
        try:
            if freed != inputs:
                with contextlib.suppress(UnansweredError):
                    return freed, self._outputs.specs(self._answer, freed)
            return inputs, self._outputs.specs(self._answer, inputs)
        except UnansweredError as error:
            raise BadArtifactError(
                f"{artifact.name}: the model raised on made-up inputs {', '.join(map(str, inputs))} ({error}): if those"
                ' are right, declare the outputs in the model\'s spec, like "signature": {"outputs": {"output":'
                ' {"datatype": "FP32", "shape": [-1, 2]}}}'
            ) from error

    def _answer(self, inputs: Arrays) -> Any:
        """What the model gives, as it gives it."""
        if self._renew is not None and inputs[_START.name].any():
            self._call = self._renew()
        assert self._call is not None  # noqa: S101 - run after load
        with torch.inference_mode():
            if self._by_name:
                return self._call(**{argument: convert(inputs[name]) for name, argument, convert in self._convert})
            return self._call(*[convert(inputs[name]) for name, _, convert in self._convert])


def _open(artifact: Path, options: Options, device: str) -> Program:
    form = Form.PICKLED if artifact.suffix == ".safetensors" else form_of(artifact)
    wanted = options.torch.compile
    if wanted is not None and form in {Form.SCRIPT, Form.COMPILED}:
        raise BadArtifactError(
            f"{artifact.name}: the model's spec asks for torch.compile, which takes exported programs and networks;"
            f" this is {form.value}"
        )
    if form in {Form.EXPORTED, Form.COMPILED} and not options.trusted:
        raise BadArtifactError(
            f"{artifact.name} is {form.value}, which can run code when loaded: set trusted in the model's spec if you"
            " know where it comes from"
        )
    match form:
        case Form.SCRIPT:
            return open_script(artifact, device)
        case Form.EXPORTED:
            return open_exported(artifact, device, partial(_compiled, mode=wanted))
        case Form.COMPILED:
            return open_compiled(artifact)
        case Form.PICKLED:
            return open_network(
                artifact, trusted=options.trusted, device=device, compile_=partial(_compiled, mode=wanted)
            )


def _compiled(module: Any, mode: str | None) -> Any:
    """`module`, compiled where a mode is asked for; sizes stay free, so that it is compiled once for all batches."""
    if mode is None:
        return module
    if not any(map(shutil.which, _COMPILERS)):
        raise BadArtifactError("torch.compile needs a C++ compiler (g++), which this pod has not installed")
    return torch.compile(module, mode=mode, dynamic=True)


def _converter(each: Input, program: Program, device: str) -> values.ToValue:
    if each.argument.is_number:
        return values.to_number
    convert: values.ToValue = values.to_copy if program.may_write else values.to_tensor
    if each.spec.datatype == "BF16":
        convert = values.of_words(convert)
    return convert if device == "cpu" else lambda array: convert(array).to(device)


def _with_rows(found: list[Input]) -> tuple[TensorSpec, ...]:
    """The inputs with a free first dimension, if all are of one example and have as many rows in it."""
    inputs = tuple(each.spec for each in found)
    if not all(each.argument.is_example and each.spec.shape == each.argument.shape for each in found):
        return inputs
    if len({spec.shape[0] for spec in inputs if spec.shape}) != 1:
        return inputs
    return tuple(spec._replace(shape=(-1, *spec.shape[1:]) if spec.shape else ()) for spec in inputs)


def _set_threads(threads: int) -> None:
    torch.set_num_threads(threads)
    if torch.get_num_interop_threads() != 1:
        with contextlib.suppress(RuntimeError):  # it can be said once in a process
            torch.set_num_interop_threads(1)
