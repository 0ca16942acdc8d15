"""The REST API is what its description says, whatever is sent to it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.router_mesh import RouterMesh, router_mesh

pytestmark = pytest.mark.asyncio(loop_scope="module")
EXAMPLES = 3  # of a route


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RouterMesh]:
    """REST is the same beside either front door of gRPC."""
    async with router_mesh(tmp_path_factory.mktemp("router"), "native") as mesh:
        yield mesh


def no_fault_of_its_own(_context: object, response: Any, _case: object) -> None:
    """What is unready, too late or not offered is said so; it is never our own fault."""
    assert response.status_code < 500 or response.status_code in {501, 503, 504}, response.text


CHECKS: Any = [
    no_fault_of_its_own,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]


async def test_it_is_valid_and_there_for_people_too(mesh: RouterMesh) -> None:
    answer = await mesh.rest("/openapi.json", method="GET")
    assert answer.status == 200
    OpenAPIV31SpecValidator(answer.body).validate()

    assert {"/v2/models/{model}/infer", "/v2/health/ready", "/openapi.json"} <= answer.body["paths"].keys()


async def test_whatever_is_sent_the_answer_is_as_described(mesh: RouterMesh) -> None:
    model = await mesh.model()
    document = (await mesh.rest("/openapi.json", method="GET")).body
    await asyncio.to_thread(attack, document, f"http://{mesh.rest_address}", model.name, EXAMPLES)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_so_it_is_of_many_requests(mesh: RouterMesh) -> None:
    model = await mesh.model()
    document = (await mesh.rest("/openapi.json", method="GET")).body
    await asyncio.to_thread(attack, document, f"http://{mesh.rest_address}", model.name, 100)


def attack(document: dict[str, Any], address: str, model: str, examples: int) -> None:
    """Requests as the description allows them, and others; half of them for a model that is there."""
    described = schemathesis.openapi.from_dict(document)
    for found in described.get_all_operations():
        operation = found.ok()
        if examples == EXAMPLES and "{version}" in operation.path:
            continue  # as without a version
        kept = settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )

        @kept
        @given(case=operation.as_strategy())
        def run(case: schemathesis.Case) -> None:
            if "model" in case.path_parameters and sum(map(len, map(str, case.path_parameters.values()))) % 2:
                case.path_parameters["model"] = model
                if "version" in case.path_parameters:
                    case.path_parameters["version"] = "1"
            case.call_and_validate(base_url=address, checks=CHECKS, timeout=20)

        run()
