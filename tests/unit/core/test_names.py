from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from services.core.names import (
    KeySource,
    Label,
    ModelName,
    ModelVersion,
    Version,
    is_model_name,
    is_version,
    version_order,
)
from services.core.spec import explain

GOOD_NAMES = ["digits", "A", "0", "a.b-c_d", "9lives", "x" * 128]
BAD_NAMES = ["", "-a", ".a", "_a", "a/b", "a b", "a\n", "é", "٣", "a:b", "x" * 129]
GOOD_VERSIONS = ["0", "1", "10", "9" * 18]
BAD_VERSIONS = ["", "01", "00", "-1", "+1", "1.0", " 1", "1\n", "v1", "1_0", "٣", "9" * 19]
NO_NAME = " is no name: letters, digits, '.', '_' and '-', at most 128, the first a letter or digit"
NO_VERSION = " is no version: a decimal number without leading zeros, at most 18 digits"
NO_SOURCE = " names no source of a key: give NAME (a request parameter), header:NAME or input:NAME"


def said(kind: Any, text: str) -> str:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(text)
    return explain(caught.value)


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_a_model_name_is_letters_digits_and_a_few_signs(name: str) -> None:
    assert is_model_name(name)
    assert TypeAdapter(ModelName).validate_python(name) == name


@pytest.mark.parametrize("name", BAD_NAMES)
def test_anything_else_is_no_model_name(name: str) -> None:
    assert not is_model_name(name)
    assert said(ModelName, name).endswith(NO_NAME)


@pytest.mark.parametrize("version", GOOD_VERSIONS)
def test_a_version_is_a_decimal_string(version: str) -> None:
    assert is_version(version)
    assert TypeAdapter(Version).validate_python(version) == version


@pytest.mark.parametrize("version", BAD_VERSIONS)
def test_anything_else_is_no_version(version: str) -> None:
    assert not is_version(version)
    assert said(Version, version) == f"{version!r}{NO_VERSION}"


def test_a_long_name_is_shown_by_its_beginning() -> None:
    assert said(Version, "7" * 10_000) == f"'{'7' * 64}'…{NO_VERSION}"


@pytest.mark.parametrize("label", ["champion", "v2", "2.1", "01"])
def test_a_label_is_a_name(label: str) -> None:
    assert TypeAdapter(Label).validate_python(label) == label


def test_a_label_cannot_hide_a_version() -> None:
    assert said(Label, "2") == "'2' is no label: it would hide the version of that number"
    assert said(Label, "a/b") == f"'a/b'{NO_NAME}"


@pytest.mark.parametrize("source", ["user_id", "header:x-user", "header:X-User", "input:user:id", "input:ü"])
def test_a_key_comes_from_a_parameter_a_header_or_an_input(source: str) -> None:
    assert TypeAdapter(KeySource).validate_python(source) == source


@pytest.mark.parametrize("source", ["", ":", "header:", "input:", "heder:x", "header:a b", "parameter:x"])
def test_another_source_of_a_key_is_refused(source: str) -> None:
    assert said(KeySource, source) == f"{source!r}{NO_SOURCE}"


def test_versions_order_as_numbers() -> None:
    assert sorted(["10", "9", "0", "100"], key=version_order) == ["0", "9", "10", "100"]


def test_a_model_version_is_written_with_a_slash() -> None:
    assert str(ModelVersion("digits", "3")) == "digits/3"
