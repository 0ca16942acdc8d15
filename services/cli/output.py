"""What commands print: tables for people, JSON for scripts; plain text when stdout is not a terminal."""

import sys
from collections.abc import Sequence
from typing import Any

import orjson
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

_PLAIN_WIDTH = 160  # columns, where there is no terminal to ask


def console(*, stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PLAIN_WIDTH
    return Console(file=stream, width=width, highlight=False, soft_wrap=False, emoji=False)


def say(text: str, style: str = "") -> None:
    """One line as it is: nothing in it is markup, and it is never wrapped."""
    console().print(Text(text, style=style), soft_wrap=True)


def print_json(value: Any) -> None:
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode() + "\n")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], numbers: Sequence[str] = ()) -> Table:
    """A table; the columns named in `numbers` are aligned to the right."""
    box = SIMPLE_HEAD if sys.stdout.isatty() else None
    made = Table(
        title=title or None, title_justify="left", title_style="bold", box=box, pad_edge=False, padding=(0, 2, 0, 0)
    )
    for column in columns:
        made.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(str(cell)) for cell in row))
    return made


def show(made: Table) -> None:
    out = console()
    if out.is_terminal:
        out.print(made)
        return
    with out.capture() as captured:
        out.print(made)
    out.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
