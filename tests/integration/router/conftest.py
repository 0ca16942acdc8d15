from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.router_mesh import FRONTS, RouterMesh, router_mesh


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=FRONTS)
async def mesh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RouterMesh]:
    """A router behind each of the two front doors; tests of a module share it, each with models of its own."""
    settings = getattr(request.module, "SETTINGS", {})
    async with router_mesh(tmp_path_factory.mktemp("router"), request.param, **settings) as mesh:
        yield mesh


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def no_errors_of_its_own(mesh: RouterMesh) -> AsyncIterator[None]:
    """Whatever a test does to the router, nothing fails inside it."""
    seen = len(mesh.router.lines)
    yield
    errors = [line for line in mesh.router.lines[seen:] if '"level": "error"' in line or not line.startswith("{")]
    assert errors == []
