"""The V2 REST API of management: model repository, trace and log settings; and the fleet's routes."""

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson

from services.chassis.http import HttpRequest, HttpResponse, Routes
from services.core.errors import InvalidRequestError
from services.fleet.routes import StoredRoute
from services.router.management.offer import Offer
from services.router.rest import about_management as about
from services.router.rest.infer import timeout_s
from services.router.rest.json_data import loads

_ANY_REPOSITORY = ("/v2/repository", "/v2/repository/{repository}")
_ROUTES = "/management/v1/routes"


class Management:
    """Handlers that ask what the listener offers."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer

    def add_routes(self, routes: Routes) -> None:
        for path in _ANY_REPOSITORY:
            routes.add("POST", f"{path}/index", self.index, about=about.INDEX)
            routes.add("POST", f"{path}/models/{{model}}/load", self.load, role="manage", about=about.LOAD)
            routes.add("POST", f"{path}/models/{{model}}/unload", self.unload, role="manage", about=about.UNLOAD)
        for path in ("/v2/trace/setting", "/v2/models/{model}/trace/setting"):
            routes.add("GET", path, self.traces, role="manage", about=about.TRACES)
            routes.add("POST", path, self.set_traces, role="manage", about=about.SET_TRACES)
        routes.add("GET", "/v2/logging", self.logs, role="manage", about=about.LOGS)
        routes.add("POST", "/v2/logging", self.set_logs, role="manage", about=about.SET_LOGS)
        routes.add("GET", _ROUTES, self.all_routes, role="manage", about=about.ROUTES)
        one = f"{_ROUTES}/{{model}}"
        routes.add("GET", one, self.route, role="manage", about=about.ROUTE)
        routes.add("PUT", one, self.put_route, role="manage", about=about.PUT_ROUTE)
        routes.add("DELETE", one, self.delete_route, role="manage", about=about.DELETE_ROUTE)

    # -- the model repository

    async def index(self, request: HttpRequest, repository: str = "") -> HttpResponse:
        ready = _object(request).get("ready", False)
        if not isinstance(ready, bool):
            raise InvalidRequestError(f"ready is {ready!r}: true or false")
        rows = await self._offer.repository.index(repository, ready=ready)
        seen = [row for row in rows if request.may("predict", row.model)]
        return _json([{"name": r.model, "version": r.version, "state": r.state, "reason": r.reason} for r in seen])

    async def load(self, request: HttpRequest, model: str, repository: str = "") -> HttpResponse:
        self._offer.check_here()
        parameters = await asyncio.to_thread(_parameters, request)  # files may be in them
        await self._offer.repository.load(repository, model, parameters, timeout_s(request.headers))
        return _json({"name": model, "load": True})

    async def unload(self, request: HttpRequest, model: str, repository: str = "") -> HttpResponse:
        self._offer.check_here()
        await self._offer.repository.unload(repository, model, _parameters(request), timeout_s(request.headers))
        return _json({"name": model, "unload": True})

    # -- settings

    async def traces(self, _request: HttpRequest, model: str = "") -> HttpResponse:
        self._offer.check_here()
        return _json(_trace_body(await self._offer.settings.traces(model, {})))

    async def set_traces(self, request: HttpRequest, model: str = "") -> HttpResponse:
        self._offer.check_here()
        given = {name: _values(name, value) for name, value in _object(request).items()}
        return _json(_trace_body(await self._offer.settings.traces(model, given)))

    async def logs(self, _request: HttpRequest) -> HttpResponse:
        self._offer.check_here()
        return _json(await self._offer.settings.logs({}))

    async def set_logs(self, request: HttpRequest) -> HttpResponse:
        self._offer.check_here()
        return _json(await self._offer.settings.logs(_object(request)))

    # -- routes

    async def all_routes(self, _request: HttpRequest) -> HttpResponse:
        self._offer.check_here()
        routes = await self._offer.routes.all()
        return _json({"routes": {model: _route_body(route) for model, route in routes.items()}})

    async def route(self, _request: HttpRequest, model: str) -> HttpResponse:
        self._offer.check_here()
        route = await self._offer.routes.get(model)
        return _json(_route_body(route), {"ETag": f'"{route.revision}"'})

    async def put_route(self, request: HttpRequest, model: str) -> HttpResponse:
        self._offer.check_here()
        route, applied = await self._offer.routes.put(model, bytes(request.body), _expected(request.headers))
        body = {**_route_body(route), "routers": applied._asdict()}
        return _json(body, {"ETag": f'"{route.revision}"'})

    async def delete_route(self, request: HttpRequest, model: str) -> HttpResponse:
        self._offer.check_here()
        await self._offer.routes.delete(model, _expected(request.headers))
        return _json({"model": model, "deleted": True})


def _json(body: Any, headers: Mapping[str, str] | None = None) -> HttpResponse:
    return HttpResponse(orjson.dumps(body), headers=headers or {})


def _object(request: HttpRequest) -> dict[str, Any]:
    """The body, which may be empty."""
    body = bytes(request.body)
    value = loads(body) if body.strip() else {}
    if not isinstance(value, dict):
        raise InvalidRequestError("the body is no JSON object")
    return value


def _parameters(request: HttpRequest) -> dict[str, Any]:
    body = _object(request)
    for name in body:
        if name != "parameters":
            raise InvalidRequestError(f"unknown field {name!r}; there is parameters")
    parameters = body.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise InvalidRequestError("parameters is no object")
    return parameters


def _values(name: str, value: Any) -> list[str]:
    """A trace setting's values: text, a list of it, a number; null falls back."""
    values = [] if value is None else value if isinstance(value, list) else [value]
    if any(isinstance(each, bool) or not isinstance(each, str | int | float) for each in values):
        raise InvalidRequestError(f"{name} is {str(value)[:64]}; it takes text, a list of text, or null")
    return [str(each) for each in values]


def _trace_body(held: Mapping[str, list[str]]) -> dict[str, Any]:
    """As Triton has it: the level is a list, all else text."""
    return {name: words if name == "trace_level" else words[0] for name, words in held.items()}


def _route_body(route: StoredRoute) -> dict[str, Any]:
    if route.fault:
        return {"revision": route.revision, "fault": route.fault, "value": route.value.decode(errors="replace")}
    return {"revision": route.revision, "route": orjson.loads(route.value)}


def _expected(headers: Mapping[str, str]) -> int | None:
    """The revision that a change builds on, by If-Match or If-None-Match: *; None = any."""
    if headers.get("if-none-match") == "*":
        return 0
    text = headers.get("if-match")
    if text is None or text == "*":
        return None
    revision = text.strip().strip('"')
    if not revision.isdecimal() or len(revision) > 18:
        raise InvalidRequestError(f'If-Match is {text[:40]!r}; it takes a revision, as in "17"')
    return int(revision)
