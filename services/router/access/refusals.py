"""How a refusal is counted."""

from collections.abc import Callable

Refused = Callable[[str, str], None]  # caller's name ("" = nobody known), one of `reasons`
