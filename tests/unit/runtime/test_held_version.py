"""One version of a model on its way."""

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Never

from services.core.model_spec import ModelSpec
from services.core.names import ModelVersion
from services.runtime.artifact_cache import ArtifactCache, Fetched
from services.runtime.catalogue import Sighting
from services.runtime.held_version import HeldVersion, Means
from services.runtime.local_repository import LocalFolder
from services.runtime.source import Artifact
from services.runtime.wanted import Progress


class Odd(ArtifactCache):
    """One that fails as nobody thought of."""

    async def fetch(self, artifact: Artifact, framework: str | None) -> Fetched:
        raise ZeroDivisionError


def start(*_: object) -> Never:
    raise AssertionError("nothing is there to be started")


async def test_a_fetch_that_nobody_expected_to_fail_is_a_fault_of_its_version_only(tmp_path: Path) -> None:
    tasks: list[asyncio.Task[None]] = []
    swept = asyncio.Event()
    swept.set()

    def spawn(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        tasks.append(asyncio.ensure_future(work))
        return tasks[-1]

    held = HeldVersion(ModelVersion("m", "1"), Means(Odd(tmp_path / "cache"), start, spawn, lambda: None, swept))
    now_s = time.monotonic()
    sighting = Sighting(Artifact(LocalFolder(tmp_path, None), ()), now_s, now_s)
    held.want(ModelSpec(), sighting, is_settled=True)
    await asyncio.gather(*tasks)

    assert (held.fault, held.progress) == ("cannot be read: ZeroDivisionError", Progress.FAILED)
