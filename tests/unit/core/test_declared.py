import pytest

from services.core.model_spec import ModelSpec
from services.core.signature import TensorSpec
from services.core.spec import BadValueError

DECLARED = b"""{"signature": {
  "inputs": {"b": {"datatype": "FP32", "shape": [-1, 4]}, "a": {"datatype": "INT64", "shape": []}},
  "outputs": {"y": {"datatype": "BF16", "shape": [-1]}}}}"""


def test_tensors_keep_the_order_in_which_they_are_declared() -> None:
    signature = ModelSpec.parse(DECLARED).signature

    assert signature is not None
    assert signature.input_specs() == (TensorSpec("b", "FP32", (-1, 4)), TensorSpec("a", "INT64", ()))
    assert signature.output_specs() == (TensorSpec("y", "BF16", (-1,)),)


def test_a_declaration_survives_the_way_to_etcd_and_back_in_order() -> None:
    spec = ModelSpec.parse(DECLARED)

    again = ModelSpec.parse(spec.dump()).signature

    assert again is not None
    assert [each.name for each in again.input_specs()] == ["b", "a"]


def test_a_version_declares_its_own_signature_as_a_whole() -> None:
    raw = DECLARED[:-1] + b', "versions": {"2": {"signature": {"inputs": {"c": {"datatype": "BOOL", "shape": [1]}}}}}}'

    signature = ModelSpec.parse(raw).for_version("2").signature

    assert signature is not None
    assert (signature.input_specs(), signature.output_specs()) == ((TensorSpec("c", "BOOL", (1,)),), ())


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        ('{"datatype": "FLOAT", "shape": [1]}', "signature.inputs.x.datatype: Input should be 'BOOL', 'UINT8'"),
        ('{"datatype": "FP32", "shape": [-2]}', "signature.inputs.x.shape.0: Input should be greater than or equal"),
        ('{"datatype": "FP32"}', "signature.inputs.x.shape: Field required"),
        ('{"datatype": "FP32", "shape": ["n"]}', "signature.inputs.x.shape.0: Input should be a valid integer"),
    ],
)
def test_a_tensor_that_cannot_be_is_refused_by_name(tensor: str, message: str) -> None:
    with pytest.raises(BadValueError) as refused:
        ModelSpec.parse(f'{{"signature": {{"inputs": {{"x": {tensor}}}}}}}'.encode())

    assert str(refused.value).startswith(message)


def test_a_tensor_without_a_name_is_refused() -> None:
    with pytest.raises(BadValueError, match="a tensor's name is empty"):
        ModelSpec.parse(b'{"signature": {"outputs": {"": {"datatype": "FP32", "shape": []}}}}')
