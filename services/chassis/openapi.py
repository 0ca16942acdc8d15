"""The description of an HTTP API, made of its routes and of what each says about itself; and a page that shows it."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from services.chassis.http import JSON, HttpRequest, HttpResponse, Route, Routes

DOCUMENT, PAGE = "/openapi.json", "/docs"
EVENTS = "text/event-stream"
Schema = Any  # JSON Schema of plain objects and lists, in which a Named may stand for any schema
_NAMES = re.compile(r"\{(\w+)\}")
_NO_WORD = re.compile(r"\W+")


@dataclass(frozen=True, slots=True)
class Named:
    """A schema that is told once, under its name."""

    name: str
    schema: Schema


ERROR = Named(
    "Error",
    {
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"type": "string", "description": "What was wrong, and what would be right."}},
    },
)


@dataclass(frozen=True, slots=True)
class About:
    """What a route says of itself; the rest follows from the route.

    `answer` and `body` are schemas; None = there is nothing in it. `answer_types` and `body_types` are what it may be
    besides JSON. `codes` are statuses under which an answer has the form of a good one; `headers` of the request and
    `query` are names with what they mean; `names` are schemas of those in the path that are not any text.
    """

    summary: str
    tag: str = ""
    answer: Schema = None
    answer_types: tuple[str, ...] = ()
    body: Schema = None
    body_types: tuple[str, ...] = ()
    body_is_needed: bool = True
    codes: tuple[int, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, Schema] = field(default_factory=dict)
    details: str = ""


# How a caller says who it is, where that is asked for.
SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key, or a token."},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "A key."},
}


def describe(routes: Routes, title: str, release: str, details: str = "") -> dict[str, Any]:
    """The document, as OpenAPI 3.1 has it."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for route in routes.all:
        paths.setdefault(route.template, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": release, "description": details},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": SCHEMES},
    }


def add_description(routes: Routes, title: str, release: str, details: str = "") -> None:
    """Serve the document of `routes`, these two among them, and a page for people."""

    async def document(_request: HttpRequest) -> HttpResponse:
        return HttpResponse(json.dumps(describe(routes, title, release, details)).encode())

    async def page(_request: HttpRequest) -> HttpResponse:
        shown = _page(describe(routes, title, release, details))
        return HttpResponse(shown.encode(), content_type="text/html")

    about = About("This description, as OpenAPI 3.1 has it.", "description", answer={"type": "object"})
    routes.add("GET", DOCUMENT, document, role=None, about=about)
    about = About("This description, for people.", "description", answer_types=("text/html",))
    routes.add("GET", PAGE, page, role=None, about=about)


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    about: About = route.about or About(_first_line(route.handler.__doc__ or route.template))
    good: dict[str, Any] = {"description": "What was asked for."}
    content = _content(about.answer, about.answer_types, schemas)
    if content:
        good["content"] = content
    answers = {str(code): good for code in (200, *about.codes)}
    answers["default"] = {"description": "What was wrong.", "content": _content(ERROR, (), schemas)}
    operation: dict[str, Any] = {
        "operationId": _NO_WORD.sub("_", f"{route.method.lower()}{route.template}").strip("_"),
        "summary": about.summary,
        "parameters": [*_parameters(route, about)],
        "responses": answers,
    }
    if route.role is not None:
        operation["description"] = f"Needs the role {route.role}. {about.details}".strip()
        operation["security"] = [{}, *({name: []} for name in SCHEMES)]  # {}: where anybody may
    elif about.details:
        operation["description"] = about.details
    if about.tag:
        operation["tags"] = [about.tag]
    taken = _content(about.body, about.body_types, schemas)
    if taken:
        operation["requestBody"] = {"required": about.body_is_needed, "content": taken}
    return operation


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _parameters(route: Route, about: About) -> list[dict[str, Any]]:
    text = {"type": "string"}
    path = [
        {"name": name, "in": "path", "required": True, "schema": about.names.get(name, text | {"minLength": 1})}
        for name in _NAMES.findall(route.template)
    ]
    given = [("header", about.headers), ("query", about.query)]
    others = [
        {"name": name, "in": where, "description": means, "schema": text}
        for where, names in given
        for name, means in names.items()
    ]
    return path + others


def _content(schema: Schema, types: tuple[str, ...], schemas: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {} if schema is None else {JSON: {"schema": _plain(schema, schemas)}}
    return content | {kind: {} if kind != EVENTS else {"schema": {"type": "string"}} for kind in types}


def _plain(schema: Schema, schemas: dict[str, Any]) -> Any:
    """`schema` with each Named in it as a reference to where it is told."""
    if isinstance(schema, Named):
        if schema.name not in schemas:
            schemas[schema.name] = {}  # it may speak of itself
            schemas[schema.name] = _plain(schema.schema, schemas)
        return {"$ref": f"#/components/schemas/{schema.name}"}
    if isinstance(schema, Mapping):
        return {key: _plain(value, schemas) for key, value in schema.items()}
    if isinstance(schema, list | tuple):
        return [_plain(value, schemas) for value in schema]
    return schema


_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body{{font:15px/1.5 system-ui;margin:2em auto;max-width:62em;padding:0 1em}}code{{font-size:14px}}
td{{padding:.2em 1em .2em 0;vertical-align:top}}</style>
<h1>{title} {release}</h1><p>{details}</p><p>Schemas are in <a href=".{document}">{document}</a>.</p>{tables}</html>
"""


def _page(document: Mapping[str, Any]) -> str:
    tables: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tag = next(iter(operation.get("tags", ())), "other")
            row = f"<tr><td><code>{method.upper()}&nbsp;{escape(path)}</code><td>{escape(operation['summary'])}"
            tables.setdefault(tag, []).append(row)
    info = document["info"]
    shown = "".join(f"<h2>{escape(tag)}</h2><table>{''.join(rows)}</table>" for tag, rows in tables.items())
    return _PAGE.format(
        title=escape(info["title"]),
        release=escape(info["version"]),
        details=escape(info["description"]),
        document=DOCUMENT,
        tables=shown,
    )
