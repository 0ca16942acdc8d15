"""Models that give back what they take, of every datatype, and a mesh that serves them behind both front doors."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.clients.values import BATCH_ROWS, MODELS, MOST_ROWS, WIDTH
from tests.support.mesh import Mesh
from tests.support.mesh_probes import QUICK, introduce

ROUTERS = ("router", "router-aio")  # by their front doors
TFS = {"TFS_GRPC_ADDRESS": "127.0.0.1:0"}
NAMES = ("runtime-0", "batcher-0", *ROUTERS)
_CODE = """
class Model:
    inputs = {{"in_" + each.lower(): (each, [-1, {width}]) for each in {datatypes!r}}}
    outputs = {{"out_" + each.lower(): (each, [-1, {width}]) for each in {datatypes!r}}}

    def predict(self, inputs):
        return {{"out_" + name[3:]: array for name, array in inputs.items()}}
"""
_SPEC = {
    "trusted": True,
    "default_deadline_ms": 30_000,
    "batching": {"max_batch_size": BATCH_ROWS},
    "limits": {"max_request_rows": MOST_ROWS},
}


def write(repository: Path, name: str, datatypes: Sequence[str]) -> None:
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(_CODE.format(width=WIDTH, datatypes=tuple(datatypes)))


@asynccontextmanager
async def echo_mesh(folder: Path, **router: str) -> AsyncIterator[Mesh]:
    """A mesh that serves MODELS; `router` = settings of both its routers."""
    settings = {**QUICK, "router": router}
    async with Mesh(folder, only=NAMES[:3], settings=settings) as mesh:
        mesh.add("router-aio", "router", NATIVE_FRONT="false")
        await mesh.start("router-aio")
        for name, datatypes in MODELS.items():
            write(mesh.repository, name, datatypes)
            for door in ROUTERS:
                await introduce(mesh, name, 1, spec=_SPEC, router=door)
        yield mesh
