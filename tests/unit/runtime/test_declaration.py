import pytest

from services.core.declared import DeclaredSignature
from services.core.signature import Signature, TensorSpec
from services.runtime.backends import BadArtifactError
from services.runtime.declaration import agreed

FOUND = Signature(
    (TensorSpec("x", "FP32", (-1, -1)), TensorSpec("ids", "INT64", (-1, 3))),
    (TensorSpec("y", "FP32", (-1, 2)),),
    batches=True,
)


def declared(inputs: dict | None = None, outputs: dict | None = None, **fields: bool) -> DeclaredSignature:
    tensors = {
        role: {name: {"datatype": datatype, "shape": shape} for name, (datatype, shape) in (given or {}).items()}
        for role, given in (("inputs", inputs), ("outputs", outputs))
    }
    return DeclaredSignature.model_validate(tensors | fields)


def test_nothing_declared_changes_nothing() -> None:
    assert agreed(FOUND, None) is FOUND
    assert agreed(FOUND, declared()) == FOUND


def test_what_is_free_in_one_is_as_the_other_says() -> None:
    both = agreed(FOUND, declared({"x": ("FP32", (-1, 4)), "ids": ("INT64", (-1, -1))}))

    assert both.inputs == (TensorSpec("x", "FP32", (-1, 4)), TensorSpec("ids", "INT64", (-1, 3)))
    assert both.batches


def test_rows_can_be_declared_to_be_no_rows() -> None:
    assert not agreed(FOUND, declared(batches=False)).batches
    assert not agreed(FOUND, declared({"x": ("FP32", (1, 4))})).batches


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ({"z": ("FP32", (-1,))}, {}, "signature declares input 'z'; the artifact's inputs are x, ids"),
        ({}, {"z": ("FP32", (-1,))}, "signature declares output 'z'; the artifact's outputs are y"),
        ({"x": ("FP64", (-1, 4))}, {}, "signature declares input x FP64[-1, 4]; the artifact has x FP32[-1, -1]"),
        (
            {"ids": ("INT64", (-1, 4))},
            {},
            "signature declares input ids INT64[-1, 4]; the artifact has ids INT64[-1, 3]",
        ),
        ({}, {"y": ("FP32", (-1,))}, "signature declares output y FP32[-1]; the artifact has y FP32[-1, 2]"),
    ],
)
def test_a_contradiction_is_refused(inputs: dict, outputs: dict, message: str) -> None:
    with pytest.raises(BadArtifactError) as refused:
        agreed(FOUND, declared(inputs, outputs))

    assert str(refused.value) == message
