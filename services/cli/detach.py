"""turnout up --detach: the same command in the background, followed until it serves."""

import subprocess
import sys
import time
from collections.abc import Sequence

from services.cli.data_dir import DataDir
from services.cli.errors import CliError
from services.cli.output import say

_READY_S = 900.0  # training included
_POLL_S = 0.1


def detach(data: DataDir, arguments: Sequence[str]) -> None:
    """Run `turnout up ARGUMENTS` on its own, pass on what it prints until it serves, and leave it running."""
    log = data.logs / "up.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "services.cli", "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    deadline = time.monotonic() + _READY_S
    with log.open("rb") as lines:
        while True:
            code = process.poll()
            is_ready = (running := data.read()) is not None and running.is_ready and running.pid == process.pid
            sys.stdout.write(lines.read().decode(errors="replace"))
            sys.stdout.flush()
            if code is not None:
                raise CliError("the mesh did not start; what it said is above", code=code or 1)
            if is_ready:
                break
            if time.monotonic() > deadline:
                process.terminate()
                raise CliError(f"the mesh was not ready within {_READY_S:g} s; its log is {log}")
            time.sleep(_POLL_S)
    say(f"It runs on in the background as process {process.pid}; what it says from now on goes to {log}")
