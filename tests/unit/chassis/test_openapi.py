"""The description of an API is made of its routes, and is what OpenAPI wants."""

import json
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from services.chassis.http import HttpRequest, HttpResponse, Routes
from services.chassis.openapi import EVENTS, About, Named, add_description, describe

LEAF = Named("Leaf", {"type": "object", "properties": {"next": {"type": "string"}}})
TREE = Named("Tree", {"type": "object", "properties": {"leaves": {"type": "array", "items": LEAF}}})


async def handler(_request: HttpRequest, **_names: str) -> HttpResponse:
    """Says nothing.

    And no more.
    """
    return HttpResponse()


@pytest.fixture
def routes() -> Routes:
    routes = Routes()
    about = About("Grows.", "trees", TREE, body=LEAF, body_types=("text/plain",), codes=(503,), headers={"X-A": "why"})
    routes.add("POST", "/trees/{tree}/leaves/{leaf}:grow", handler, about=about)
    routes.add("GET", "/trees/{tree}", handler)
    routes.add("DELETE", "/trees/{tree}", handler, about=About("Fells.", answer_types=(EVENTS,), query={"now": "soon"}))
    add_description(routes, "Trees & co", "1.2")
    return routes


async def answer(routes: Routes, path: str) -> HttpResponse:
    route, names = routes.find("GET", path)
    return await route.handler(HttpRequest("GET", path, {}), **names)


def test_every_route_is_in_it_and_it_is_valid(routes: Routes) -> None:
    document: Any = describe(routes, "Trees", "1")
    OpenAPIV31SpecValidator(document).validate()

    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(route.method, route.template) for route in routes.all}


def test_what_a_route_says_is_told(routes: Routes) -> None:
    document = describe(routes, "Trees", "1")
    grow = document["paths"]["/trees/{tree}/leaves/{leaf}:grow"]["post"]

    assert [(each["in"], each["name"]) for each in grow["parameters"]] == [
        ("path", "tree"),
        ("path", "leaf"),
        ("header", "X-A"),
    ]
    assert list(grow["responses"]) == ["200", "503", "default"]
    assert list(grow["requestBody"]["content"]) == ["application/json", "text/plain"]
    assert document["components"]["schemas"]["Tree"]["properties"]["leaves"]["items"] == {
        "$ref": "#/components/schemas/Leaf"
    }
    assert document["paths"]["/trees/{tree}"]["get"]["summary"] == "Says nothing."
    assert (grow["description"], grow["security"]) == ("Needs the role predict.", [{}, {"bearer": []}, {"key": []}])
    assert "security" not in document["paths"]["/docs"]["get"]
    fell = document["paths"]["/trees/{tree}"]["delete"]
    assert (list(fell["responses"]["200"]["content"]), fell["parameters"][1]["name"]) == ([EVENTS], "now")


async def test_it_is_served_and_shown(routes: Routes) -> None:
    served = await answer(routes, "/openapi.json")
    shown = await answer(routes, "/docs")

    assert isinstance(served.body, bytes)
    assert isinstance(shown.body, bytes)
    assert json.loads(served.body) == describe(routes, "Trees & co", "1.2")
    assert shown.content_type == "text/html"
    assert b"Trees &amp; co" in shown.body
    assert b"/trees/{tree}" in shown.body
