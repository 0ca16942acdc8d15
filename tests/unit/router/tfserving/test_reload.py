import pytest

from services.core.errors import PermissionDeniedError
from services.core.model_spec import ModelSpec
from services.core.tf_serving_config import models_of
from services.router.tfserving.reload import Change, change_of
from turnout.tfserving import model_service_pb2 as pb

# As tensorflow-serving-api 2.21 writes it: m at /b/m, versions 1 and 2, stable = 2.
GOLDEN = "0a2e0a2c0a2a0a016d12042f622f6d220a74656e736f72666c6f773a07b206040a020102420a0a06737461626c651002"


def spec(**fields: object) -> ModelSpec:
    return ModelSpec.model_validate(fields)


def change(**held: ModelSpec) -> Change:
    request = pb.ReloadConfigRequest.FromString(bytes.fromhex(GOLDEN))
    return change_of(list(models_of(request.config)), held)


def test_what_is_listed_is_loaded_and_what_is_not_is_let_go() -> None:
    policy = {"version_policy": {"specific": ["1", "2"]}}

    found = change(m=spec(loaded=False), other=spec(), gone=spec(loaded=False))

    assert found == Change({"m": policy}, ("other",), {"m": {"stable": "2"}})
    assert change(m=spec(**policy)).loads == {}
    assert change(m=spec(**policy, loaded=False)).loads == {"m": policy}


@pytest.mark.parametrize("repository", ["/b", "file:///b", "file:///b/", None])
def test_a_base_path_is_where_the_model_lies(repository: str | None) -> None:
    assert "m" in change(m=spec(repository=repository)).loads


@pytest.mark.parametrize("held", [spec(repository="file:///c"), spec(folder="n"), spec(repository="/b", folder="n")])
def test_no_model_is_moved_over_the_network(held: ModelSpec) -> None:
    with pytest.raises(PermissionDeniedError, match="model m does not lie at that base_path"):
        change(m=held)


def test_no_model_is_added_over_the_network() -> None:
    with pytest.raises(PermissionDeniedError, match="model m is not in models/"):
        change(other=spec())
