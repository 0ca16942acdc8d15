"""What a caller reads of a model's exception."""

import pytest

from services.runtime.faults import describe


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("bad row"), "ValueError: bad row"),
        (ValueError(), "ValueError"),
        (KeyError("age"), "KeyError: 'age'"),
        (OSError("cannot open /srv/models/a b/x.bin now"), "OSError: cannot open (path) b/x.bin now"),
        (ValueError("a\n  b\tc"), "ValueError: a b c"),
        (ValueError("1/2 and 3/4 of x"), "ValueError: 1/2 and 3/4 of x"),
    ],
)
def test_type_and_text_without_paths(error: Exception, expected: str) -> None:
    assert describe(error) == expected


def test_a_long_text_is_cut() -> None:
    text = describe(ValueError("x" * 100_000))

    assert len(text) == 500
    assert text.endswith("…")
