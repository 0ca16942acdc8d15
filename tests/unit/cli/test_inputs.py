import json
from pathlib import Path

import numpy as np
import pytest

from services.cli.errors import CliError
from services.cli.inputs import fit, parse_inputs, parse_parameters
from services.core.signature import TensorSpec

X = TensorSpec("x", "FP32", (-1, 2))


def test_an_input_is_json_or_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((2, 2), np.float32))
    (tmp_path / "b.json").write_text(json.dumps([[1, 2]]))

    inputs = parse_inputs([f"a=@{tmp_path / 'a.npy'}", f"b=@{tmp_path / 'b.json'}", "c=[[true]]", 'd=["x=y"]'])

    assert {name: array.tolist() for name, array in inputs.items()} == {
        "a": [[1, 1], [1, 1]],
        "b": [[1, 2]],
        "c": [[True]],
        "d": ["x=y"],
    }


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("x", "NAME="),
        ("=1", "NAME="),
        ("x=[1,", "no JSON"),
        ("x=[[1],[1,2]]", "no JSON array"),
        ('x={"a":1}', "expected numbers"),
        ("x=@/nowhere.npy", "no file"),
    ],
)
def test_an_input_that_cannot_be_read_is_refused_by_name(value: str, message: str) -> None:
    with pytest.raises(CliError, match=message):
        parse_inputs([value])


def test_a_file_that_is_no_array_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(b"nonsense")

    with pytest.raises(CliError, match="cannot be read"):
        parse_inputs([f"x=@{tmp_path / 'x.npy'}"])


def test_numbers_become_what_the_model_takes() -> None:
    fitted = fit(parse_inputs(["x=[[1, 2]]"]), [X])

    assert (fitted["x"].dtype.name, fitted["x"].shape) == ("float32", (1, 2))


def test_text_for_a_number_is_called_text() -> None:
    with pytest.raises(CliError, match="input x: text does not fit FP32"):
        fit(parse_inputs(['x=[["a", "b"]]']), [X])


def test_a_single_row_gets_its_row_dimension() -> None:
    assert fit(parse_inputs(["x=[1, 2]"]), [X])["x"].shape == (1, 2)


def test_text_becomes_bytes_elements() -> None:
    fitted = fit(parse_inputs(['x=["a", "b"]']), [TensorSpec("x", "BYTES", (-1,))])

    assert fitted["x"].dtype == object


@pytest.mark.parametrize(("value", "datatype"), [('x=["a"]', "FP32"), ("x=[1.5]", "INT64"), ("x=[300]", "UINT8")])
def test_a_value_that_does_not_fit_the_datatype_is_refused(value: str, datatype: str) -> None:
    with pytest.raises(CliError, match=f"fit {datatype}"):
        fit(parse_inputs([value]), [TensorSpec("x", datatype, (-1,))])


def test_an_input_that_the_model_does_not_have_is_left_to_the_router() -> None:
    assert fit(parse_inputs(["z=[1]"]), [X])["z"].tolist() == [1]


def test_parameters_are_what_they_look_like() -> None:
    assert parse_parameters(["a=1", "b=1.5", "c=true", "d=x=y", "e="]) == {
        "a": 1,
        "b": 1.5,
        "c": True,
        "d": "x=y",
        "e": "",
    }


def test_a_parameter_without_a_value_is_refused() -> None:
    with pytest.raises(CliError, match="NAME=VALUE"):
        parse_parameters(["a"])
