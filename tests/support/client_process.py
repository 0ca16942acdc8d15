"""Clients that others wrote, each in a process of its own: their messages have the names of ours."""

import asyncio
import json
import sys
from typing import Any

from tests.support.service_process import REPOSITORY

_WITHIN_S = 60


async def said_by(module: str, *arguments: str) -> Any:
    """The JSON that `python -m module` prints. It must end well, within a minute."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=REPOSITORY,
    )
    async with asyncio.timeout(_WITHIN_S):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out)
