"""The table of routes: which handler a method and path have."""

import pytest

from services.chassis.http import HttpRequest, HttpResponse, MethodNotAllowedError, Routes
from services.core.errors import NotFoundError, http_status_of


async def handler(_request: HttpRequest, **names: str) -> HttpResponse:
    return HttpResponse(repr(sorted(names.items())).encode())


def table(*templates: str) -> Routes:
    routes = Routes()
    for template in templates:
        method, _, path = template.partition(" ")
        routes.add(method, path, handler)
    return routes


@pytest.mark.parametrize(
    ("template", "path", "names"),
    [
        ("/v2", "/v2", {}),
        ("/v2/models/{model}", "/v2/models/a.b-c_1", {"model": "a.b-c_1"}),
        (
            "/v2/models/{model}/versions/{version}/infer",
            "/v2/models/m/versions/3/infer",
            {"model": "m", "version": "3"},
        ),
        ("/v1/models/{model}:predict", "/v1/models/m:predict", {"model": "m"}),
        ("/v2/models/{model}", "/v2/models/a%20b%2Fc", {"model": "a b/c"}),
    ],
)
def test_names_in_the_path_are_handed_over_decoded(template: str, path: str, names: dict[str, str]) -> None:
    route, found = table("GET " + template).find("GET", path)

    assert (route.template, found) == (template, names)


@pytest.mark.parametrize("path", ["/", "/v2/", "/v2/models/", "/v2/models/a/b", "/v2/models/a:predict", "/v3"])
def test_other_paths_are_not_found(path: str) -> None:
    with pytest.raises(NotFoundError, match="there is no such path"):
        table("GET /v2", "GET /v2/models/{model}").find("GET", path)


def test_another_method_is_told_which_the_path_takes() -> None:
    routes = table("GET /v2/logging", "POST /v2/logging")

    with pytest.raises(MethodNotAllowedError, match="DELETE /v2/logging: this path takes GET, POST") as refused:
        routes.find("DELETE", "/v2/logging")

    assert http_status_of(refused.value) == 405
    assert refused.value.allowed == ["GET", "POST"]


def test_a_route_added_later_is_found_although_its_path_was_asked_for_before() -> None:
    routes = table("GET /v2")
    with pytest.raises(NotFoundError):
        routes.find("GET", "/v2/models")

    routes.add("GET", "/v2/models", handler)

    assert routes.find("GET", "/v2/models")[0].template == "/v2/models"


def test_an_endless_path_is_cut_in_its_error() -> None:
    with pytest.raises(NotFoundError) as refused:
        table("GET /v2").find("GET", "/" + "x" * 100_000)

    assert len(str(refused.value)) < 300
