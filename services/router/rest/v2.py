"""The V2 REST API of what the router knows: itself, its models, their readiness, configuration and statistics."""

import orjson

from services.chassis.http import HttpRequest, HttpResponse, Routes
from services.router.catalogue import Catalogue
from services.router.plain import plain
from services.router.rest import about
from services.router.rest.codec import tensors
from services.router.statistics_codec import model_statistics

MODEL = "/v2/models/{model}"
VERSION = MODEL + "/versions/{version}"


class Metadata:
    """Handlers that ask the catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def add_routes(self, routes: Routes) -> None:
        routes.add("GET", "/v2", self.server, role=None, about=about.SERVER)
        routes.add("GET", "/v2/health/live", self.live, role=None, about=about.LIVE)
        routes.add("GET", "/v2/health/ready", self.ready, role=None, about=about.READY)
        routes.add("GET", "/v2/models", self.models, about=about.MODELS)
        # Before a model of that name.
        routes.add("GET", "/v2/models/stats", self.statistics, role="read-metrics", about=about.STATISTICS)
        for path in (MODEL, VERSION):
            routes.add("GET", path, self.model, about=about.MODEL)
            routes.add("GET", path + "/ready", self.model_ready, role=None, about=about.MODEL_READY)
            routes.add("GET", path + "/config", self.config, about=about.CONFIG)
            routes.add("GET", path + "/stats", self.statistics, role="read-metrics", about=about.STATISTICS)

    async def server(self, _request: HttpRequest) -> HttpResponse:
        return HttpResponse(orjson.dumps(self._catalogue.server_metadata()))

    async def live(self, _request: HttpRequest) -> HttpResponse:
        return HttpResponse(orjson.dumps({"live": True}))

    async def ready(self, _request: HttpRequest) -> HttpResponse:
        ready = self._catalogue.is_ready()
        return HttpResponse(orjson.dumps({"ready": ready}), 200 if ready else 503)

    async def models(self, request: HttpRequest) -> HttpResponse:
        """Those that the caller may ask."""
        names = [name for name in self._catalogue.names() if request.may("predict", name)]
        return HttpResponse(orjson.dumps({"models": names}))

    async def model(self, _request: HttpRequest, model: str, version: str = "") -> HttpResponse:
        metadata = self._catalogue.model_metadata(model, version)
        described = metadata._asdict() | {"inputs": tensors(metadata.inputs), "outputs": tensors(metadata.outputs)}
        return HttpResponse(orjson.dumps(described))

    async def model_ready(self, _request: HttpRequest, model: str, version: str = "") -> HttpResponse:
        self._catalogue.check_model_ready(model, version)
        return HttpResponse(orjson.dumps({"name": model, "ready": True}))

    async def config(self, _request: HttpRequest, model: str, version: str = "") -> HttpResponse:
        return HttpResponse(orjson.dumps(plain(self._catalogue.model_config(model, version))))

    async def statistics(self, _request: HttpRequest, model: str = "", version: str = "") -> HttpResponse:
        counted = await self._catalogue.model_statistics(model, version)
        return HttpResponse(orjson.dumps({"model_stats": [plain(model_statistics(each)) for each in counted]}))
