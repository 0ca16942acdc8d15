"""Long steps: a spinner on a terminal, plain lines elsewhere; each ends in one line that says how long it took."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.text import Text

from services.cli.output import console

Show = Callable[[str], None]


@contextmanager
def step(what: str) -> Iterator[Show]:
    """A step named `what`; call what it gives with a note on how far it is. Failures are left to be said by others."""
    out = console()
    began = time.monotonic()
    if out.is_terminal:
        with out.status(Text(f"{what} …")) as status:
            yield lambda note: status.update(Text(f"{what}: {note}"))
    else:
        out.print(Text(f"{what} …"), soft_wrap=True)
        yield lambda _: None
    out.print(Text(f"{what}: done in {time.monotonic() - began:.1f} s"), soft_wrap=True)
