"""turnout down: stop a mesh that runs in the background."""

import os
import signal
import time

from services.cli.data_dir import DataDir
from services.cli.errors import CliError
from services.cli.options import DEFAULT_DATA_DIR, DataDirOption
from services.cli.output import say

_STOP_S = 90.0
_POLL_S = 0.1


def down(data_dir: DataDirOption = DEFAULT_DATA_DIR) -> None:
    """Stop the mesh of a data folder and wait until it has ended. Example: turnout down."""
    data = DataDir(data_dir)
    running = data.read()
    if running is None:
        say(f"no mesh runs in {data.root}")
        return
    try:
        os.kill(running.pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise CliError(f"process {running.pid} belongs to someone else") from None
    deadline = time.monotonic() + _STOP_S
    while data.is_locked():
        if time.monotonic() > deadline:
            raise CliError(
                f"process {running.pid} did not stop within {_STOP_S:g} s; its log is {data.logs / 'up.log'}"
            )
        time.sleep(_POLL_S)
    say("stopped")
