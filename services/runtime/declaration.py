"""An artifact's signature beside what is declared: the two must fit, and each fills in what the other leaves free."""

from collections.abc import Sequence
from dataclasses import replace

from services.core.declared import DeclaredSignature
from services.core.signature import Signature, TensorSpec
from services.runtime.backends import BadArtifactError


def agreed(found: Signature, declared: DeclaredSignature | None) -> Signature:
    """What both say. Raises BadArtifactError where they contradict each other.

    What is not declared stays as it was found. Batching can be switched off so, not on.
    """
    if declared is None:
        return found
    inputs = _merged("input", found.inputs, declared.input_specs())
    outputs = _merged("output", found.outputs, declared.output_specs())
    batches = found.batches and declared.batches
    if batches and any(spec.shape[:1] != (-1,) for spec in inputs + outputs):
        batches = False  # the first size is declared: it counts no rows
    return replace(found, inputs=inputs, outputs=outputs, batches=batches)


def _merged(role: str, found: Sequence[TensorSpec], declared: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    wanted = {spec.name: spec for spec in declared}
    names = [spec.name for spec in found]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise BadArtifactError(
            f"signature declares {role} {unknown[0]!r}; the artifact's {role}s are {', '.join(names) or 'none'}"
        )
    return tuple(_one(role, spec, wanted[spec.name]) if spec.name in wanted else spec for spec in found)


def _one(role: str, found: TensorSpec, declared: TensorSpec) -> TensorSpec:
    fits = len(found.shape) == len(declared.shape) and all(
        -1 in pair or pair[0] == pair[1] for pair in zip(found.shape, declared.shape, strict=True)
    )
    if found.datatype != declared.datatype or not fits:
        raise BadArtifactError(f"signature declares {role} {declared}; the artifact has {found}")
    return declared._replace(shape=tuple(map(max, found.shape, declared.shape)))
