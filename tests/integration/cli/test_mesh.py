"""The tests' own mesh: parts start alone, are found, killed and started again."""

from pathlib import Path

from tests.support.mesh import Mesh


async def test_any_part_starts_alone_is_found_and_comes_back(tmp_path: Path) -> None:
    async with Mesh(tmp_path, only=["shadow"]) as mesh:
        first = await mesh.record("shadow")
        assert first
        assert await mesh.address("shadow") == await mesh.listening("shadow", "link") == first.address

        await mesh.kill("shadow")
        await mesh.restart("shadow")

        second = await mesh.record("shadow")
        assert second
        assert second.pid != first.pid
        assert await mesh.stop("shadow") == 0
