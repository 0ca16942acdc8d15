"""Request bodies of the REST API, read within bounds of size, of time, and of what all of them hold together."""

import asyncio

from aiohttp import web

from services.core.errors import DeadlineExceededError, InvalidRequestError, OverloadedError, TooLargeError

_WITHIN_S = 30.0  # a caller that sends slower than that holds memory for nothing
_AT_ONCE = 4  # bodies of the largest size that may be half read at a time


class BodyReader:
    """`limit_bytes` counts what a compressed body inflates to."""

    def __init__(self, limit_bytes: int, within_s: float = _WITHIN_S) -> None:
        self._limit_bytes = limit_bytes
        self._within_s = within_s
        self._reading_bytes = 0  # of bodies that are not complete yet

    async def read(self, request: web.Request) -> bytearray:
        """The body, inflated. Raises ServingError.

        Not request.read(): that takes chunks of the whole limit, so a small compressed body grows to several of them.
        """
        body = bytearray()
        try:
            async with asyncio.timeout(self._within_s):
                async for chunk in request.content.iter_any():
                    body += chunk
                    self._reading_bytes += len(chunk)
                    self._check(len(body))
        except TimeoutError:
            raise DeadlineExceededError(f"the body did not come within {self._within_s:g} s") from None
        except web.RequestPayloadError:
            encoding = request.headers.get("Content-Encoding", "none")
            raise InvalidRequestError(f"the body cannot be read with Content-Encoding {encoding[:40]!r}") from None
        finally:
            self._reading_bytes -= len(body)
        return body

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self._limit_bytes:
            raise TooLargeError(f"the body is larger than {self._limit_bytes} bytes, the most this router takes")
        if self._reading_bytes > _AT_ONCE * self._limit_bytes:
            raise OverloadedError(f"{self._reading_bytes} bytes of unfinished bodies are held; try again")
