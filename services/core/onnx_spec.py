"""`onnx` of a model's spec: how onnxruntime runs it."""

from typing import Literal, Self

from pydantic import Field, model_validator

from services.core.spec import Spec

Provider = Literal["cpu", "cuda", "tensorrt", "openvino"]


class OnnxSettings(Spec):
    """For ONNX models only."""

    # Execution providers in order of preference, each needed; empty = what the instance's device says. The processor
    # takes what others cannot.
    providers: tuple[Provider, ...] = ()
    provider_options: dict[Provider, dict[str, str]] = Field(default={})  # as onnxruntime names them
    cache_optimized: bool = True  # keep the optimised graph, TensorRT's engine, for the next start where that is faster

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(set(self.providers)) != len(self.providers):
            raise ValueError("providers: one is named twice")
        strange = [name for name in self.provider_options if name not in (*self.providers, "cpu")]
        if strange:
            raise ValueError(f"provider_options: {strange[0]} is not among providers")
        return self
