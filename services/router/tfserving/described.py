"""What the router knows of models, in TensorFlow Serving's words: signatures, and versions with their states."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from google.protobuf.json_format import MessageToDict

from services.core.errors import UNAVAILABLE, InvalidRequestError, NotFoundError
from services.core.names import is_version, version_order
from services.core.registry import Inventory, InventoryVersion
from services.core.signature import SERVING_DEFAULT, Signature, TensorSpec
from services.router.table import Entry, Table, Target
from services.router.tfserving.tensors import KINDS
from turnout.tfserving import model_service_pb2 as service_pb
from turnout.tfserving import prediction_service_pb2 as pb
from turnout.tfserving import tensor_pb2

SIGNATURE_DEF = "signature_def"  # the only metadata there is
_PREDICT = "tensorflow/serving/predict"
_State = service_pb.ModelVersionStatus
_STATES = {
    "READY": _State.LOADING,  # in a pod, and not yet where the router can send to: that is AVAILABLE
    "LOADING": _State.LOADING,
    "UNLOADING": _State.UNLOADING,
    "UNAVAILABLE": _State.END,
    "UNKNOWN": _State.UNKNOWN,
}
_LIVELIEST = (_State.LOADING, _State.UNLOADING, _State.END, _State.UNKNOWN)


def explicit_version(version: str, label: str) -> str:
    """The version or label of a path. Raises InvalidRequestError or NotFoundError."""
    if version and not is_version(version):
        raise InvalidRequestError(f"version {version[:64]!r} is no number; a label stands behind /labels/")
    if label and is_version(label):
        raise NotFoundError(f"label {label!r} is a version, which stands behind /versions/")
    return version or label


class Described:
    """Answers about models. Raises NotFoundError for what nobody has configured."""

    def __init__(self, table: Table, inventories: Callable[[], Iterable[Inventory]]) -> None:
        self._table = table
        self._inventories = inventories

    def target(self, model: str, version: str) -> Target:
        """The version that a request with this version or label gets; without one, the stable one."""
        entry = self._table.entry(model)
        choice = entry.chooser.choose(version, b"", {}) if version else entry.chooser.stable()
        return entry.targets[choice.version]

    def status(self, model: str, version: str) -> service_pb.GetModelStatusResponse:
        """Every version, or the one that is asked for."""
        entry = self._table.entry(model)
        known = version_states(model, entry, self._inventories())
        if version:
            number = entry.chooser.named(version)
            known = {number: known[number]} if number in known else {}
        if not known:
            asked = f"version {version}" if version else "version that a pod knows"
            raise NotFoundError(f"model {model} has no {asked}")
        states = [known[number] for number in sorted(known, key=version_order, reverse=True)]
        return service_pb.GetModelStatusResponse(model_version_status=states)


def version_states(model: str, entry: Entry, inventories: Iterable[Inventory]) -> dict[str, _State]:
    """Version -> its state: the liveliest that a pod says, AVAILABLE where requests can be sent."""
    found: dict[str, _State] = {}
    for inventory in inventories:
        for version, held in inventory.models.get(model, {}).items():
            state = _state(version, held)
            before = found.get(version)
            if before is None or _LIVELIEST.index(state.state) < _LIVELIEST.index(before.state):
                found[version] = state
    for version in entry.targets:
        found[version] = _State(version=int(version), state=_State.AVAILABLE, status=service_pb.StatusProto())
    return found


def _state(version: str, held: InventoryVersion) -> _State:
    failed = held.failures > 0 and held.state != "READY"
    status = service_pb.StatusProto(error_code=UNAVAILABLE, error_message=held.reason) if failed else None
    return _State(version=int(version), state=_STATES[held.state], status=status or service_pb.StatusProto())


def signature_defs(target: Target) -> pb.SignatureDefMap:
    """Every signature of a version; the usual one as its callers see it."""
    usual = target.signature.name or SERVING_DEFAULT
    defs = {usual: _signature_def(target.caller_signature)}
    defs.update({each.name: _signature_def(each) for each in target.signature.more})
    return pb.SignatureDefMap(signature_def=defs)


def _signature_def(signature: Signature) -> pb.SignatureDef:
    return pb.SignatureDef(
        inputs={spec.name: _tensor_info(spec) for spec in signature.inputs},
        outputs={spec.name: _tensor_info(spec) for spec in signature.outputs},
        method_name=_PREDICT,
    )


def _tensor_info(spec: TensorSpec) -> pb.TensorInfo:
    dims = [tensor_pb2.TensorShapeProto.Dim(size=size) for size in spec.shape]
    shape = tensor_pb2.TensorShapeProto(dim=dims)
    return pb.TensorInfo(name=spec.name, dtype=KINDS[spec.datatype].dtype, tensor_shape=shape)


def metadata_json(target: Target) -> Mapping[str, Any]:
    """The answer to GET …/metadata."""
    return {
        "model_spec": {"name": target.model, "signature_name": "", "version": target.version},
        "metadata": {SIGNATURE_DEF: _as_dict(signature_defs(target))},
    }


def status_json(status: service_pb.GetModelStatusResponse) -> Mapping[str, Any]:
    """The answer to GET /v1/models/MODEL."""
    codes = {0: "OK", UNAVAILABLE: "UNAVAILABLE"}
    states = []
    for each in status.model_version_status:
        error = {"error_code": codes[each.status.error_code], "error_message": each.status.error_message}
        states.append({"version": str(each.version), "state": _State.State.Name(each.state), "status": error})
    return {"model_version_status": states}


def _as_dict(message: Any) -> Any:
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
