from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.shadow_mesh import Mesh, mesh_in


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[Mesh]:
    async with mesh_in(tmp_path) as mesh:
        yield mesh
