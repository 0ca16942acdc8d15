import pytest

from inference import grpc_service_pb2
from services.router.access.interceptor import RULES, rule_of

SERVICE = grpc_service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]


@pytest.mark.parametrize("name", [method.name for method in SERVICE.methods])
def test_every_method_says_what_it_needs_and_where_its_model_is(name: str) -> None:
    rule = RULES[f"/{SERVICE.full_name}/{name}"]

    fields = set(SERVICE.methods_by_name[name].input_type.fields_by_name)
    assert rule.model in {"", *fields}
    if rule.role is not None and "SharedMemory" not in name:  # whose regions have names, too
        assert rule.model in ({"name", "model_name"} & fields or {""})


def test_health_is_asked_by_anybody_and_what_nobody_thought_of_is_for_managers() -> None:
    assert rule_of("/grpc.health.v1.Health/Watch").role is None
    assert rule_of("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo").role is None
    assert rule_of("/some.other/Method").role == "manage"
    assert rule_of("/inference.GRPCInferenceService/RepositoryModelUnload").role == "manage"
