import pytest
from pydantic import Field, ValidationError, model_validator

from services.core.spec import BadValueError, Spec


class Inner(Spec):
    size: int = Field(default=1, ge=1)
    ratio: float = 0.5


class Outer(Spec):
    name: str
    inner: Inner = Inner()
    sizes: dict[str, Inner] = {}
    tags: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> "Outer":
        if self.name == "wrong":
            raise ValueError("name: it is wrong")
        return self


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not JSON: EOF while parsing a value at line 1 column 0"),
        (b"{", "not JSON: EOF while parsing an object at line 1 column 1"),
        (b"\xff", "not JSON: expected value at line 1 column 1"),
        (b'{"name": "\xff"}', "not JSON: invalid unicode code point at line 1 column 11"),
        (b'{"name": "\\ud800"}', "not JSON: unexpected end of hex escape at line 1 column 17"),
        (b"[" * 100_000, "not JSON: recursion limit exceeded at line 1 column 202"),
        (b"[]", "value: Input should be an object"),
        (b"null", "value: Input should be an object"),
        (b"{}", "name: Field required"),
        (b'{"name": 1}', "name: Input should be a valid string"),
        (b'{"name": "a", "nmae": "b"}', "nmae: unknown field"),
        (b'{"name": "a", "inner": {"sise": 1}}', "inner.sise: unknown field"),
        (b'{"name": "a", "inner": {"size": 0}}', "inner.size: Input should be greater than or equal to 1"),
        (b'{"name": "a", "inner": {"size": "1"}}', "inner.size: Input should be a valid integer"),
        (b'{"name": "a", "inner": {"size": true}}', "inner.size: Input should be a valid integer"),
        (b'{"name": "a", "inner": {"size": 1.5}}', "inner.size: Input should be a valid integer"),
        (b'{"name": "a", "inner": {"ratio": false}}', "inner.ratio: Input should be a valid number"),
        (b'{"name": "a", "inner": {"ratio": NaN}}', "inner.ratio: Input should be a finite number"),
        (b'{"name": "a", "inner": {"ratio": 1e999}}', "inner.ratio: Input should be a finite number"),
        (b'{"name": "a", "sizes": {"b": 1}}', "sizes.b: Input should be an object"),
        (b'{"name": "wrong"}', "name: it is wrong"),
        (
            b'{"inner": {"ratio": ""}, "x": 1}',
            "name: Field required; inner.ratio: Input should be a valid number; x: unknown field",
        ),
    ],
)
def test_every_fault_is_named_with_its_field(raw: bytes, message: str) -> None:
    with pytest.raises(BadValueError) as caught:
        Outer.parse(raw)

    assert str(caught.value) == message


def test_a_value_holds_what_its_json_says() -> None:
    parsed = Outer.parse(b'{"name": "a", "inner": {"ratio": 2}, "tags": ["x", "y"]}')

    assert parsed == Outer(name="a", inner=Inner(ratio=2.0), tags=("x", "y"))


def test_a_dump_leaves_defaults_out_and_parses_back() -> None:
    value = Outer(name="é", inner=Inner(size=3), sizes={"b": Inner(ratio=0.25)})

    assert value.dump() == '{"name":"é","inner":{"size":3},"sizes":{"b":{"ratio":0.25}}}'.encode()
    assert Outer.parse(value.dump()) == value


def test_a_value_is_frozen() -> None:
    value = Outer(name="a")

    with pytest.raises(ValidationError, match="frozen"):
        value.name = "b"  # type: ignore[misc]
