"""A worker process as its supervisor starts it."""

import pytest

from services.runtime.process import describe_exit


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (0, "exited with status 0"),
        (3, "exited with status 3"),
        (-9, "was killed by SIGKILL"),
        (-99, "was killed by signal 99"),
    ],
)
def test_an_exit_is_said_in_words(status: int, expected: str) -> None:
    assert describe_exit(status) == expected
