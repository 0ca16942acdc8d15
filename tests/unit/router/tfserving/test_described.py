import pytest

from services.core.errors import InvalidRequestError, NotFoundError
from services.core.model_spec import ModelSpec
from services.core.registry import Inventory
from services.core.route_spec import RouteSpec
from services.router.choice import Chooser
from services.router.table import Entry
from services.router.tfserving import described
from tests.support.puppets import signature
from tests.support.targets import target
from turnout.tfserving import model_service_pb2 as pb

STATE = pb.ModelVersionStatus


def inventory(**versions: tuple[str, int]) -> Inventory:
    held = {
        name.removeprefix("v"): {"state": state, "failures": n, "reason": "r"} for name, (state, n) in versions.items()
    }
    return Inventory.model_validate({"models": {"m": held}})


def entry(*ready: str) -> Entry:
    route = RouteSpec.model_validate({"stable": "1", "labels": {"champion": "2"}})
    chooser = Chooser("m", route, None, {"1", "2"}, set(ready))
    return Entry("m", ModelSpec(), chooser, {version: target([("x", "FP32", (-1, 2))]) for version in ready})


def test_a_version_has_the_state_of_its_liveliest_pod_and_is_available_where_requests_go() -> None:
    pods = [
        inventory(v1=("READY", 0), v2=("UNAVAILABLE", 3), v3=("UNLOADING", 0), v4=("UNAVAILABLE", 0)),
        inventory(v1=("LOADING", 0), v2=("LOADING", 3), v3=("UNAVAILABLE", 0), v5=("READY", 0)),
    ]

    found = described.version_states("m", entry("1"), pods)

    assert {version: state.state for version, state in found.items()} == {
        "1": STATE.AVAILABLE, "2": STATE.LOADING, "3": STATE.UNLOADING, "4": STATE.END, "5": STATE.LOADING,
    }  # fmt: skip
    assert (found["2"].status.error_code, found["2"].status.error_message) == (14, "r")
    assert found["4"].status == pb.StatusProto()


def test_its_json_has_versions_as_text() -> None:
    state = STATE(version=2, state=STATE.END, status=pb.StatusProto(error_code=14, error_message="r"))

    assert described.status_json(pb.GetModelStatusResponse(model_version_status=[state])) == {
        "model_version_status": [
            {"version": "2", "state": "END", "status": {"error_code": "UNAVAILABLE", "error_message": "r"}}
        ]
    }


def test_signatures_are_described_as_tensorflow_does() -> None:
    other = signature([("t", "BYTES", (-1,))], [("e", "FP16", (-1, 3))])
    other.name = "embed"
    use = {"view": "v", "columns": ["c"], "input": "w", "entity": "id"}
    both = target([("x", "INT64", (-1, 2)), ("w", "FP32", (-1, 1))], more=[other], features=[use])

    answer = described.metadata_json(both)

    defs = answer["metadata"]["signature_def"]["signature_def"]
    assert answer["model_spec"] == {"name": "m", "signature_name": "", "version": "1"}
    assert set(defs) == {"serving_default", "embed"}
    assert defs["serving_default"]["inputs"] == {  # what features fill is none of the callers' business
        "x": {
            "dtype": "DT_INT64",
            "name": "x",
            "tensor_shape": {"dim": [{"size": "-1", "name": ""}, {"size": "2", "name": ""}], "unknown_rank": False},
        }
    }
    assert defs["embed"]["method_name"] == "tensorflow/serving/predict"
    assert defs["embed"]["outputs"]["e"]["dtype"] == "DT_HALF"
    # {serving_default: {x: DT_FLOAT [-1]}} as tensorflow-serving-api 2.21 writes it, name and method included.
    golden = (
        "0a4a0a0f73657276696e675f64656661756c7412370a190a017812140a017810011a0d120b08ffffffffffffffffff01"
        "1a1a74656e736f72666c6f772f73657276696e672f70726564696374"
    )
    plain = described.signature_defs(target([("x", "FP32", (-1,))]))
    plain.signature_def["serving_default"].ClearField("outputs")
    assert plain.SerializeToString(deterministic=True).hex() == golden


def test_versions_are_numbers_and_labels_are_not() -> None:
    assert described.explicit_version("3", "") == "3"
    assert described.explicit_version("", "stable") == "stable"
    with pytest.raises(InvalidRequestError, match="version 'stable' is no number"):
        described.explicit_version("stable", "")
    with pytest.raises(NotFoundError, match="label '3' is a version"):
        described.explicit_version("", "3")
