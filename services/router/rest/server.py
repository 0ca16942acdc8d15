"""The REST listener: bytes of HTTP in, a handler's answer out, every fault as its status and {"error": …}."""

import logging
import math

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from services.chassis.http import HttpRequest, HttpResponse, MethodNotAllowedError, Routes
from services.chassis.listening import CannotListenError, split_address
from services.chassis.tls import ListenerSecurity, shown_on
from services.core.errors import InternalError, ServingError, http_status_of
from services.router.flight import REQUEST_ID, request_id_of
from services.router.rest.bodies import BodyReader
from services.router.rest.codec import error_body

log = structlog.get_logger()


def _refusal(headers: dict[str, str], error: ServingError) -> HttpResponse:
    answered = {}
    if error.retry_after_s is not None:
        answered["Retry-After"] = str(math.ceil(error.retry_after_s))
        answered["retry-after-ms"] = str(math.ceil(error.retry_after_s * 1000))
    if isinstance(error, MethodNotAllowedError):
        answered["Allow"] = ", ".join(error.allowed)
    if request_id := request_id_of(headers):
        answered[REQUEST_ID] = request_id
    return HttpResponse(error_body(str(error)), http_status_of(error), headers=answered)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether what aiohttp logs is news: bytes from a caller that are not HTTP are not."""
    fault = record.exc_info[1] if record.exc_info else None
    return not isinstance(fault, HttpProcessingError | web.RequestPayloadError)


class RestServer:
    """One listener of `routes`; `address` is the bound host:port."""

    def __init__(self, routes: Routes, *, max_message_bytes: int) -> None:
        logger = logging.getLogger("turnout.http")
        logger.addFilter(_is_ours)
        self._routes = routes
        self._bodies = BodyReader(max_message_bytes)
        application = web.Application()
        application.router.add_route("*", r"/{path:[\s\S]*}", self._serve)
        self._runner = web.AppRunner(
            application, access_log=None, logger=logger, handler_cancellation=True, shutdown_timeout=1
        )
        self.address = ""

    async def start(self, address: str, *, reuse_port: bool, security: ListenerSecurity | None = None) -> None:
        """`security` None = plaintext. Raises CannotListenError."""
        host, port = split_address(address)
        await self._runner.setup()
        context = security.context if security else None
        site = web.TCPSite(self._runner, host, port, reuse_port=reuse_port, ssl_context=context)
        try:
            await site.start()
        except OSError as error:
            raise CannotListenError.explain(address, error) from error
        self.address = f"{host}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        headers = {key.lower(): value for key, value in request.headers.items()}
        try:
            answer = await self._answer(request, headers)
        except ServingError as error:
            answer = _refusal(headers, error)
        except ConnectionError:
            raise
        except Exception:
            log.exception("rest_failed", path=request.path)
            answer = _refusal(headers, InternalError("internal error"))
        if isinstance(answer.body, bytes):
            response = web.Response(
                body=answer.body, status=answer.status, content_type=answer.content_type, headers=answer.headers
            )
            if request.content.exception() is not None:  # there is no telling where the next request begins
                request.content.feed_eof()
                response.force_close()
            return response
        return await _stream(request, answer)

    async def _answer(self, request: web.Request, headers: dict[str, str]) -> HttpResponse:
        method = "GET" if request.method == "HEAD" else request.method
        route, names = self._routes.find(method, request.rel_url.raw_path)
        asked = HttpRequest(
            method=method,
            path=request.rel_url.raw_path,
            headers=headers,
            body=await self._bodies.read(request),
            query=request.query,
            peer=request.remote or "",
            certificate=shown_on(request.transport),
        )
        return await route.handler(asked, **names)


async def _stream(request: web.Request, answer: HttpResponse) -> web.StreamResponse:
    """Send the parts of an answer as they come."""
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_type = answer.content_type
    await response.prepare(request)
    async for part in answer.body:  # type: ignore[union-attr]
        await response.write(part)
    await response.write_eof()
    return response
