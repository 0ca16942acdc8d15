"""The head of a request: its line and fields, read by llhttp, and what follows from them."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from httptools import HttpParserError, HttpParserInvalidURLError, HttpParserUpgrade, HttpRequestParser, parse_url

from services.chassis.http import Route
from services.chassis.http_server.encoding import accepted, offered
from services.chassis.http_server.limits import Limits
from services.core.errors import INVALID_ARGUMENT, ServingError, TooLargeError

END = b"\r\n\r\n"
CHUNKED = -1  # instead of a length
_SHOWN = 80  # characters of what was sent, in an error
# Given twice, these have no meaning that all parties would agree on.
_ONCE = {"host", "content-length", "content-type", "authorization", "inference-header-content-length"}


class HttpFaultError(ServingError):
    """The caller broke HTTP, or wants of it what is not offered; nothing that follows on its connection is read."""

    code = INVALID_ARGUMENT

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.http_status = status  # type: ignore[misc]


class Head:
    """One head, shared by all requests that begin with the same bytes: nothing in it may be changed but `memo`."""

    __slots__ = (
        "accepts",
        "content_length",
        "encoding",
        "expects_continue",
        "fault",
        "headers",
        "is_head",
        "is_old",
        "keeps_alive",
        "memo",
        "method",
        "names",
        "path",
        "query",
        "route",
    )

    route: Route
    names: Mapping[str, str]

    def __init__(self, method: str, version: str, target: bytes, headers: Mapping[str, str]) -> None:
        self.is_head = method == "HEAD"
        self.method = "GET" if self.is_head else method
        self.path, self.query = _path_and_query(target)
        self.headers = headers
        self.is_old = version == "1.0"
        self.content_length = _length(headers, is_old=self.is_old)
        tokens = {token.strip() for token in headers.get("connection", "").lower().split(",")}
        self.keeps_alive = "close" not in tokens and (not self.is_old or "keep-alive" in tokens)
        self.expects_continue = _expects_continue(headers)
        self.fault: ServingError | None = None  # for which the request is refused once it is whole
        try:
            self.encoding = offered(headers.get("content-encoding", ""))
        except ServingError as error:
            self.encoding, self.fault = "", error
        self.accepts = accepted(headers.get("accept-encoding", ""))
        self.memo: Any = None  # what the route's handler made of the head


class _Told:
    """What llhttp tells of a head."""

    def __init__(self) -> None:
        self.target = b""
        self.fields: list[tuple[bytes, bytes]] = []
        self.is_complete = False

    def on_url(self, part: bytes) -> None:
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))

    def on_headers_complete(self) -> None:
        self.is_complete = True


class Beginning:
    """A head that is not whole yet: looked at as it comes, so that what is no HTTP hears so at once."""

    def __init__(self) -> None:
        self._parser = HttpRequestParser(_Told())

    def look(self, data: bytes) -> None:
        """Raises HttpFaultError."""
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            raise _no_http(error) from None


def read_head(data: bytes, limits: Limits) -> Head:
    """The head that `data` is, its blank line included. Raises ServingError."""
    told = _Told()
    parser = HttpRequestParser(told)
    try:
        parser.feed_data(data[:-1])
        if told.is_complete:  # for llhttp it ended earlier: two readers of one request must not disagree
            raise HttpFaultError("what was sent is not HTTP/1.1: its head ends in other line ends than CR LF")
        parser.feed_data(data[-1:])
    except HttpParserUpgrade:
        pass  # answered in HTTP/1.1 all the same
    except HttpParserError as error:
        raise _no_http(error) from None
    if not told.is_complete:
        raise HttpFaultError("what was sent is not HTTP/1.1: its head does not end where its blank line is")
    if len(told.target) > limits.target_bytes:
        raise HttpFaultError(f"the path has {len(told.target)} bytes; at most {limits.target_bytes} are taken", 414)
    if len(told.fields) > limits.fields:
        raise HttpFaultError(f"{len(told.fields)} header fields; at most {limits.fields} are taken", 431)
    headers = _headers(told.fields)
    version = parser.get_http_version()
    if "host" not in headers and version == "1.1":
        raise HttpFaultError("the request has no Host field")
    head = Head(parser.get_method().decode(), version, told.target, headers)
    if head.content_length > limits.body_bytes:
        raise too_large(limits.body_bytes)
    return head


def too_large(limit_bytes: int) -> TooLargeError:
    return TooLargeError(f"the body is larger than {limit_bytes} bytes, the most that is taken")


def _no_http(error: HttpParserError) -> HttpFaultError:
    return HttpFaultError(f"what was sent is not HTTP/1.1: {str(error)[:_SHOWN]}")


def _headers(fields: list[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in fields:
        name, value = raw_name.decode("latin-1").lower(), _text(raw_value.strip())
        if name not in headers:
            headers[name] = value
        elif name in _ONCE:
            raise HttpFaultError(f"header field {name!r} is given twice")
        else:
            headers[name] = f"{headers[name]}, {value}"
    return headers


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _path_and_query(target: bytes) -> tuple[str, dict[str, str]]:
    """Of `/path?query`, or of a whole URL as proxies send it; the path stays percent-encoded."""
    try:
        url = parse_url(target)
        path, query = (url.path or b"/").decode("ascii"), (url.query or b"").decode("ascii")
        return path, dict(parse_qsl(query, keep_blank_values=True)) if query else {}
    except (HttpParserInvalidURLError, ValueError):
        shown = target[:_SHOWN].decode(errors="replace")
        raise HttpFaultError(f"{shown!r} is no path: percent-encode what is not plain ASCII") from None


def _length(headers: Mapping[str, str], *, is_old: bool) -> int:
    length, coding = headers.get("content-length"), headers.get("transfer-encoding")
    if coding is not None:
        if length is not None or is_old:
            other = "HTTP/1.0" if is_old else "Content-Length"
            raise HttpFaultError(f"Transfer-Encoding and {other} do not go together: send one of them")
        if coding.strip().lower() != "chunked":
            raise HttpFaultError(f"Transfer-Encoding is {coding[:_SHOWN]!r}; it takes chunked", 501)
        return CHUNKED
    if length is None:
        return 0
    if not (length.isascii() and length.isdecimal() and len(length) < 19):
        raise HttpFaultError(f"Content-Length is {length[:_SHOWN]!r}; it takes a whole number")
    return int(length)


def _expects_continue(headers: Mapping[str, str]) -> bool:
    expected = headers.get("expect")
    if expected is None:
        return False
    if expected.strip().lower() != "100-continue":
        raise HttpFaultError(f"Expect is {expected[:_SHOWN]!r}; it takes 100-continue", 417)
    return True


class KnownHeads:
    """Heads by their bytes, so that a caller's head is read once: a client sends the same one again and again.

    Two generations: when the young one is full it becomes the old one, and of what was in the old one only that is
    kept which came again.
    """

    _MOST = 1024
    _MOST_BYTES = 2048  # of a head that is kept
    _UNIQUE = frozenset(("x-request-id", "traceparent", "idempotency-key", "date"))  # another in each request

    def __init__(self) -> None:
        self._young: dict[bytes, Head] = {}
        self._old: dict[bytes, Head] = {}

    def find(self, data: bytes) -> Head | None:
        head = self._young.get(data)
        if head is None:
            head = self._old.pop(data, None)
            if head is not None:
                self._keep(data, head)
        return head

    def learn(self, data: bytes, head: Head) -> None:
        if head.fault is None and len(data) <= self._MOST_BYTES and self._UNIQUE.isdisjoint(head.headers):
            self._keep(data, head)

    def _keep(self, data: bytes, head: Head) -> None:
        if len(self._young) >= self._MOST:
            self._old, self._young = self._young, {}
        self._young[data] = head
