"""The `torch` of a model in etcd: how PyTorch runs it."""

from typing import Annotated, Literal

from pydantic import Field

from services.core.spec import Spec


class TorchSettings(Spec):
    """For models of PyTorch only."""

    # Mode of torch.compile, for exported programs and networks; null = not compiled.
    compile: Literal["default", "reduce-overhead", "max-autotune"] | None = None
    # Numbers of rows for which the model is captured as CUDA graphs: a batch takes the next larger. Needs a GPU.
    cuda_graphs: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = ()
