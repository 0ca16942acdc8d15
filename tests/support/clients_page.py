"""The examples of docs/clients.md, run as they stand: only the ports are those of a mesh of the tests."""

import asyncio
import os
import re
import sys
from pathlib import Path

from tests.support.mesh import Mesh
from tests.support.service_process import REPOSITORY

PAGE = Path(REPOSITORY, "docs", "clients.md")
LISTENERS = {"8000": "rest", "8001": "grpc", "8500": "tfs-grpc"}
_RAN_S = 150.0


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[tuple[str, str]]:
    """Each line after a `$`, and what is printed below it."""
    return [
        (each.partition("\n")[0], each.partition("\n")[2]) for each in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    ]


async def at(mesh: Mesh, text: str) -> str:
    """The text with the addresses of the mesh's router for the documented ones."""
    for port, listener in LISTENERS.items():
        if f"127.0.0.1:{port}" in text:
            text = text.replace(f"127.0.0.1:{port}", await mesh.listening("router", listener))
    return text


async def ran(*command: str, path: Path | None = None) -> str:
    """What it prints; AssertionError if it fails. `path` comes first on its PATH."""
    environ = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"} if path else None
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=REPOSITORY, env=environ
    )
    try:
        async with asyncio.timeout(_RAN_S):
            out, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, said.decode()
    return out.decode()


def write_grpcurl(folder: Path) -> None:
    """Our own, under the name that the page has: the real one is in no package that tests could install."""
    program = folder / "grpcurl"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.support.grpcurl "$@"\n')
    program.chmod(0o755)


def rounded(text: str) -> str:
    """With fractions of four digits: more of them differ from processor to processor."""
    return re.sub(r"\d+\.\d{5,}", lambda found: f"{float(found[0]):.4f}", text).strip()
