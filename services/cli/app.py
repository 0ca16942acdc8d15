"""The commands, and how their failures are said: one line, and a code that is not 0."""

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.exceptions import TyperException

from services.chassis.app import release
from services.cli import callers, doctor, down, models, play, predict, record, replay, routes, security, shadow, up
from services.cli.errors import CliError
from services.core.errors import ServingError

_MISUSED, _INTERRUPTED = 2, 130

app = typer.Typer(
    name="turnout",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up")(up.up)
app.command("down")(down.down)
app.command("predict")(predict.predict)
app.add_typer(models.app, name="models")
app.add_typer(routes.app, name="routes")
app.add_typer(callers.app, name="callers")
app.add_typer(shadow.app, name="shadow")
app.command("record")(record.record)
app.command("replay")(replay.replay)
app.command("play")(play.play)
app.command("doctor")(doctor.doctor)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - as Typer calls it
    if wanted:
        typer.echo(f"turnout {release()}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
    tls_ca: Annotated[
        str, typer.Option("--tls-ca", envvar=security.TLS_CA, help="Speak TLS; PEM file of authorities, or `system`.")
    ] = "",
    cert: Annotated[str, typer.Option("--cert", envvar=security.CERT, help="PEM file of a certificate to show.")] = "",
    key: Annotated[str, typer.Option("--key", envvar=security.KEY, help="PEM file of its key.")] = "",
    api_key_file: Annotated[
        str,
        typer.Option("--api-key-file", envvar=security.API_KEY_FILE, help="Holds an API key; else TURNOUT_API_KEY."),
    ] = "",
) -> None:
    """A model-serving mesh: run one, ask it, steer it."""
    del version  # it has ended the command already
    chosen = {security.TLS_CA: tls_ca, security.CERT: cert, security.KEY: key, security.API_KEY_FILE: api_key_file}
    os.environ.update({name: value for name, value in chosen.items() if value})  # where every client looks


def run(arguments: Sequence[str]) -> int:
    """Run one command; gives the exit code."""
    try:
        code = app(list(arguments), prog_name="turnout", standalone_mode=False)
    except (KeyboardInterrupt, asyncio.CancelledError, typer.Abort):
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone, as `head` does; nothing more must be written to it, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (CliError, ServingError, TyperException) as error:
        message, code = _explain(error)
        is_help = message.startswith("Usage: ")  # a group of commands was named, and none of them
        sys.stderr.write(f"{message}\n" if is_help else f"turnout: {' '.join(message.split())}\n")
    return code if isinstance(code, int) else 0


def _explain(error: Exception) -> tuple[str, int]:
    """One line for the person at the terminal, and the exit code."""
    if isinstance(error, TyperException):
        text = error.format_message() if hasattr(error, "format_message") else str(error)
        command = getattr(getattr(error, "ctx", None), "command_path", "turnout")
        return text if text.startswith("Usage: ") else f"{text.rstrip('.')} (see {command} --help)", _MISUSED
    return str(error), error.code if isinstance(error, CliError) else 1
