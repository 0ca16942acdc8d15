"""The V2 REST API of shared memory."""

from typing import Any

import orjson

from services.chassis.http import HttpRequest, HttpResponse, Routes
from services.core.errors import InvalidRequestError
from services.router.regions import Regions, no_cuda
from services.router.rest import about_management as about
from services.router.rest.json_data import loads

_SYSTEM, _CUDA = "/v2/systemsharedmemory", "/v2/cudasharedmemory"
_MOST = 1 << 63


class SharedMemory:
    """Handlers that ask the router's regions."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions

    def add_routes(self, routes: Routes) -> None:
        one = "/region/{region}"
        for place in ("", one):
            routes.add("GET", f"{_SYSTEM}{place}/status", self.status, about=about.REGIONS)
            routes.add("POST", f"{_SYSTEM}{place}/unregister", self.unregister, about=about.UNREGISTER)
            routes.add("GET", f"{_CUDA}{place}/status", self.cuda, about=about.CUDA)
            routes.add("POST", f"{_CUDA}{place}/unregister", self.cuda, about=about.CUDA)
        routes.add("POST", f"{_SYSTEM}{one}/register", self.register, about=about.REGISTER)
        routes.add("POST", f"{_CUDA}{one}/register", self.cuda, about=about.CUDA)

    async def status(self, _request: HttpRequest, region: str = "") -> HttpResponse:
        found = self._regions.registered(region)
        said = [{"name": r.name, "key": r.key, "offset": r.offset, "byte_size": r.byte_size} for r in found]
        return HttpResponse(orjson.dumps(said))

    async def register(self, request: HttpRequest, region: str) -> HttpResponse:
        body = loads(bytes(request.body))
        if not isinstance(body, dict) or not isinstance(body.get("key"), str):
            raise InvalidRequestError('the body names no key; send {"key": "/name", "offset": 0, "byte_size": 64}')
        self._regions.register(region, body["key"], _number(body, "offset"), _number(body, "byte_size"))
        return HttpResponse()

    async def unregister(self, _request: HttpRequest, region: str = "") -> HttpResponse:
        self._regions.unregister(region)
        return HttpResponse()

    async def cuda(self, _request: HttpRequest, **_names: str) -> HttpResponse:
        raise no_cuda()


def _number(body: dict[str, Any], name: str) -> int:
    value = body.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST:
        raise InvalidRequestError(f"{name} is {value!r}; it takes a whole number of bytes")
    return value
