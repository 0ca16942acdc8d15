"""A numbered model whose input comes from a feature view: an answer names the entity that it was looked up for."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from inference import grpc_service_pb2 as pb
from services.core.feature_spec import FeatureViewSpec
from services.feature_proxy.load import Row, load
from tests.support import numbered
from tests.support.mesh import Mesh
from tests.support.mesh_probes import model_ready, put_model
from tests.support.traffic import Ask

MODEL, VIEW, ENTITY = "featured", "measures", "patient_id"
_FIRST, _PATIENTS = 1000, 500
_COLUMNS = ("a", "b", "c", "d")
_USE = {"view": VIEW, "entity": ENTITY, "input": "x"}


async def serve_featured(mesh: Mesh) -> None:
    """The view, in a file of the mesh, and the model that reads it, once it is served; `ask` asks it."""
    await prepare_featured(mesh)
    await mesh.serving(MODEL, "1")
    await model_ready(mesh, MODEL)


async def prepare_featured(mesh: Mesh) -> None:
    """As serve_featured, without waiting for anybody to serve it."""
    spec = view(mesh.folder / "features.sqlite")
    await load(spec.store, VIEW, spec, (Row(number, _values(number), 1.0) for number in _patients()))
    await mesh.put(f"feature_views/{VIEW}", spec.dump())
    numbered.write(mesh.repository, MODEL, 1)
    await put_model(mesh, MODEL, 1, spec={"features": [_USE]})


def view(file: Path) -> FeatureViewSpec:
    columns: list[Mapping[str, Any]] = [{"name": name} for name in _COLUMNS]
    return FeatureViewSpec.model_validate(
        {"store": f"sqlite://{file}", "entity": ENTITY, "columns": columns, "timeout_ms": 2000}
    )


def ask(number: int) -> Ask:
    """About one patient, whose first feature stands in the answer."""
    patient = _FIRST + number % _PATIENTS
    request = pb.ModelInferRequest(model_name=MODEL)
    request.parameters[ENTITY].int64_param = patient
    return Ask(
        request,
        lambda response: numbered.fault(response, [_values(patient)["a"]], frozenset({"1"})),
        sets_deadline=number % 2 == 0,
    )


def either(other: Callable[[int], Ask]) -> Callable[[int], Ask]:
    """Every other call is `other`'s."""
    return lambda number: other(number // 2) if number % 2 else ask(number // 2)


def _patients() -> range:
    return range(_FIRST, _FIRST + _PATIENTS)


def _values(patient: int) -> dict[str, float]:
    return {"a": patient * 7.0, "b": 1.0, "c": 2.0, "d": 3.0}
