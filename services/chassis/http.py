"""HTTP as handlers see it: a request that is whole, an answer that is bytes or a stream of them, and a table of routes.

No server is named here, so that handlers stay the same whichever serves them.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple
from urllib.parse import unquote

from services.core.errors import UNIMPLEMENTED, NotFoundError, ServingError
from services.core.roles import Role

JSON = "application/json"
_NAME = re.compile(r"\{(\w+)\}")
_KNOWN_PATHS = 4096  # looked up without a search
_SHOWN = 200  # characters of a path in an error


class MethodNotAllowedError(ServingError):
    """The path is known, the method is not."""

    code = UNIMPLEMENTED
    http_status: ClassVar[int | None] = 405

    def __init__(self, message: str, allowed: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.allowed = allowed


@dataclass(slots=True)
class HttpRequest:
    """One request with its whole body, inflated and within bounds."""

    method: str
    path: str  # as sent, percent-encoded, without the query
    headers: Mapping[str, str]  # lower-case names
    body: bytes | bytearray | memoryview = b""
    query: Mapping[str, str] = field(default_factory=dict)
    peer: str = ""  # the caller's address
    certificate: bytes = b""  # DER, of a caller that proved it is its own; empty = none
    caller: Any = None  # who that is, once the routes' guard has asked
    may: Callable[[Role, str], bool] = field(default=lambda _role, _model: True)  # may that caller, with a model?


@dataclass(slots=True)
class HttpResponse:
    """`body`: bytes, or parts that are sent as they come; leaving the iterator early means the caller went away."""

    body: bytes | AsyncIterator[bytes] = b""
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[..., Awaitable[HttpResponse]]  # (request, **names in the path); raises ServingError
HotHandler = Callable[[Any], object]  # (exchange of the server); raises ServingError


class Route(NamedTuple):
    """`template` holds {names}, each of which is one segment of the path or a part of one.

    `role`: what a caller needs; None = nothing, not even a name. `about`: for the API's description. `is_hot`: the
    handler is no coroutine; it takes an Exchange of the server, and answers that itself, now or later.
    """

    method: str
    template: str
    handler: Callable[..., Any]
    role: Role | None
    about: Any
    is_hot: bool = False


# Raises ServingError for a request that may not have what needs `role`; the names are those in its path.
Guard = Callable[[HttpRequest, Role, Mapping[str, str]], None]


class Routes:
    """Which handler serves a method and path; `guard` is asked before every handler that needs a role."""

    def __init__(self, guard: Guard | None = None) -> None:
        self._guard = guard
        self.all: list[Route] = []
        self._patterns: list[tuple[re.Pattern[str], Route]] = []
        self.find = lru_cache(_KNOWN_PATHS)(self._search)

    def add(
        self, method: str, template: str, handler: Handler, *, role: Role | None = "predict", about: Any = None
    ) -> None:
        if self._guard is not None and role is not None:
            handler = _guarded(handler, self._guard, role)
        self._add(Route(method, template, handler, role, about))

    def add_hot(
        self, method: str, template: str, handler: HotHandler, *, role: Role | None = "predict", about: Any = None
    ) -> None:
        """For what is asked for so often that a task for each request costs too much.

        No guard is asked before it: what its handler begins is held to its role where flights are admitted.
        """
        self._add(Route(method, template, handler, role, about, is_hot=True))

    def ask(self, request: HttpRequest, route: Route, names: Mapping[str, str]) -> None:
        """Ask the guard before a body is worked on that its sender may have no right to send. Raises ServingError."""
        if self._guard is not None and route.role is not None:
            self._guard(request, route.role, names)

    def _add(self, route: Route) -> None:
        template = route.template
        parts = _NAME.split(template)  # text, name, text, name, … text
        pattern = "".join(f"(?P<{part}>[^/:]+)" if index % 2 else re.escape(part) for index, part in enumerate(parts))
        self.all.append(route)
        self._patterns.append((re.compile(pattern), route))
        self.find.cache_clear()

    def _search(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """The route and the names in its path, decoded. Raises NotFoundError or MethodNotAllowedError."""
        allowed = []
        for pattern, route in self._patterns:
            match = pattern.fullmatch(path)
            if match is None:
                continue
            if route.method == method:
                return route, {name: unquote(value) for name, value in match.groupdict().items()}
            allowed.append(route.method)
        if not allowed:
            raise NotFoundError(f"{method} {path[:_SHOWN]}: there is no such path")
        takes = ", ".join(dict.fromkeys(allowed))
        raise MethodNotAllowedError(f"{method} {path[:_SHOWN]}: this path takes {takes}", allowed)


def _guarded(handler: Handler, guard: Guard, role: Role) -> Handler:
    async def guarded(request: HttpRequest, **names: str) -> HttpResponse:
        guard(request, role, names)
        return await handler(request, **names)

    return guarded
