"""The V1 REST API of what the router knows of models, as TensorFlow Serving and KServe have it."""

import orjson

from services.chassis.http import HttpRequest, HttpResponse, Routes
from services.router.catalogue import Catalogue
from services.router.rest import v1_about
from services.router.tfserving.described import Described, explicit_version, metadata_json, status_json

_MODEL = "/v1/models/{model}"
PATHS = (_MODEL, _MODEL + "/versions/{version}", _MODEL + "/labels/{label}")


class V1:
    """Handlers. `is_kserve`: GET /v1/models/MODEL has KServe's body, not TensorFlow Serving's."""

    def __init__(self, catalogue: Catalogue, described: Described, *, is_kserve: bool) -> None:
        self._catalogue = catalogue
        self._described = described
        self._is_kserve = is_kserve

    def add_routes(self, routes: Routes) -> None:
        routes.add("GET", "/v1/models", self.models, about=v1_about.MODELS)
        for path in PATHS:
            routes.add("GET", path, self.status, about=v1_about.STATUS)
            routes.add("GET", path + "/metadata", self.metadata, about=v1_about.METADATA)

    async def models(self, request: HttpRequest) -> HttpResponse:
        """Of those that its caller may use."""
        names = [name for name in self._catalogue.names() if request.may("predict", name)]
        return HttpResponse(orjson.dumps({"models": names}))

    async def status(self, _request: HttpRequest, model: str, version: str = "", label: str = "") -> HttpResponse:
        explicit = explicit_version(version, label)
        if self._is_kserve:
            self._catalogue.check_model_ready(model, explicit)
            return HttpResponse(orjson.dumps({"name": model, "ready": True}))
        return HttpResponse(orjson.dumps(status_json(self._described.status(model, explicit))))

    async def metadata(self, _request: HttpRequest, model: str, version: str = "", label: str = "") -> HttpResponse:
        target = self._described.target(model, explicit_version(version, label))
        return HttpResponse(orjson.dumps(metadata_json(target)))
