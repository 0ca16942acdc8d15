"""Heads of requests: what is read of them, what is refused, and which are known again."""

import pytest

from services.chassis.http_server.head import CHUNKED, Head, KnownHeads, read_head
from services.chassis.http_server.limits import Limits
from services.core.errors import ServingError, TooLargeError, http_status_of

LIMITS = Limits(body_bytes=1000)


def read(line: str, *fields: str) -> Head:
    return read_head("\r\n".join([line, *fields, "", ""]).encode("latin-1"), LIMITS)


def refusal(line: str, *fields: str) -> tuple[int, str]:
    with pytest.raises(ServingError) as error:
        read(line, *fields)
    return http_status_of(error.value), str(error.value)


def test_a_head_is_its_method_path_query_and_fields() -> None:
    head = read("POST /v2/a%2Fb?x=1&y=%20&z= HTTP/1.1", "Host: h", "A-b:  c ", "Two: 1", "two: 2", "Content-Length: 7")

    assert (head.method, head.path, head.query) == ("POST", "/v2/a%2Fb", {"x": "1", "y": " ", "z": ""})
    assert head.headers == {"host": "h", "a-b": "c", "two": "1, 2", "content-length": "7"}
    assert (head.content_length, head.keeps_alive, head.is_head, head.expects_continue) == (7, True, False, False)


@pytest.mark.parametrize(
    ("version", "connection", "keeps"),
    [("1.1", "x", True), ("1.1", "Close", False), ("1.0", "x", False), ("1.0", "Keep-Alive", True)],
)
def test_a_connection_is_kept_as_its_version_says(version: str, connection: str, keeps: bool) -> None:  # noqa: FBT001
    assert read(f"GET / HTTP/{version}", "Host: h", f"Connection: {connection}").keeps_alive == keeps


def test_text_that_is_not_ascii_is_text_all_the_same() -> None:
    head = read_head("GET / HTTP/1.1\r\nHost: h\r\nA: é\r\nB: ".encode() + b"\xff\r\n\r\n", LIMITS)

    assert (head.headers["a"], head.headers["b"]) == ("é", "ÿ")


def test_other_forms_of_requests() -> None:
    assert read("GET http://h:1/a?b=c HTTP/1.1", "Host: h").path == "/a"
    assert read("HEAD / HTTP/1.1", "Host: h").is_head
    assert read("POST / HTTP/1.1", "Host: h", "Transfer-Encoding: Chunked").content_length == CHUNKED
    assert read("POST / HTTP/1.1", "Host: h", "Expect: 100-Continue").expects_continue
    assert read("GET / HTTP/1.1", "Host: h", "Upgrade: h2c", "Connection: upgrade").method == "GET"
    fault = read("POST / HTTP/1.1", "Host: h", "Content-Encoding: br").fault
    assert "takes gzip or deflate" in str(fault)


LENGTH, CODING = "Content-Length: 5", "Transfer-Encoding: chunked"
REFUSALS = [
    (("GET / HTTP/1.1",), 400, "no Host field"),
    (("GET / HTTP/9.9", "Host: h"), 400, "not HTTP/1.1"),
    (("GET /a b HTTP/1.1", "Host: h"), 400, "not HTTP/1.1"),
    (("GET /\xff HTTP/1.1", "Host: h"), 400, ""),
    (("GET / HTTP/1.1", "Host: h", "A\x00: b"), 400, "not HTTP/1.1"),
    (("GET / HTTP/1.1", "Host: h", "A: b\x00"), 400, "not HTTP/1.1"),
    (("GET / HTTP/1.1", "Host : h"), 400, "not HTTP/1.1"),
    (("GET / HTTP/1.1", "Host: h", "Host: i"), 400, "'host' is given twice"),
    (("GET / HTTP/1.1", "Host: h\nX: y"), 400, ""),
    (("POST / HTTP/1.1", "Host: h", LENGTH, CODING), 400, ""),
    (("POST / HTTP/1.1", "Host: h", CODING, LENGTH), 400, ""),
    (("POST / HTTP/1.1", "Host: h", LENGTH, "Content-Length: 6"), 400, ""),
    (("POST / HTTP/1.1", "Host: h", "Content-Length: -5"), 400, ""),
    (("POST / HTTP/1.1", "Host: h", "Content-Length: 5, 5"), 400, ""),
    (("POST / HTTP/1.1", "Host: h", "Content-Length: +5"), 400, ""),
    (("POST / HTTP/1.0", "Host: h", CODING), 400, "do not go together"),
    (("POST / HTTP/1.1", "Host: h", "Transfer-Encoding: gzip, chunked"), 501, "it takes chunked"),
    (("POST / HTTP/1.1", "Host: h", "Transfer-Encoding: identity"), 400, ""),
    (("POST / HTTP/1.1", "Host: h", "Expect: more"), 417, "it takes 100-continue"),
    (("POST / HTTP/1.1", "Host: h", "Content-Length: 1001"), 413, "larger than 1000 bytes"),
    (("GET / HTTP/1.1", "Host: h", *["A: b"] * 101), 431, "header fields; at most 100"),
    (("GET /" + "a" * 9000 + " HTTP/1.1", "Host: h"), 414, "at most 8192"),
    (("PRI * HTTP/2.0",), 400, "not HTTP/1.1"),
]


@pytest.mark.parametrize(("lines", "status", "says"), REFUSALS)
def test_what_is_ambiguous_or_no_http_is_refused(lines: tuple[str, ...], status: int, says: str) -> None:
    got, text = refusal(*lines)

    assert (got, says in text) == (status, True), text


def test_a_head_that_ends_earlier_for_another_reader_is_refused() -> None:
    with pytest.raises(ServingError):
        read_head(b"GET / HTTP/1.1\r\nHost: h\n\nGET /hidden HTTP/1.1\r\n\r\n", LIMITS)


def test_too_large_is_an_error_of_size() -> None:
    with pytest.raises(TooLargeError):
        read("POST / HTTP/1.1", "Host: h", "Content-Length: 9999")


def test_heads_that_come_again_are_known_and_others_are_forgotten() -> None:
    heads = KnownHeads()
    often = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
    head = read_head(often, LIMITS)
    heads.learn(often, head)

    for number in range(3000):
        once = b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n" % number
        heads.learn(once, read_head(once, LIMITS))
        assert heads.find(often) is head

    assert heads.find(b"GET /0 HTTP/1.1\r\nHost: h\r\n\r\n") is None
    assert heads.find(b"GET /2999 HTTP/1.1\r\nHost: h\r\n\r\n") is not None


@pytest.mark.parametrize("field", ["X-Request-Id: 7", "traceparent: 00-1-2-3", "A: " + "b" * 2048])
def test_heads_that_will_not_come_again_are_not_kept(field: str) -> None:
    heads = KnownHeads()
    data = f"GET / HTTP/1.1\r\nHost: h\r\n{field}\r\n\r\n".encode()

    heads.learn(data, read_head(data, LIMITS))

    assert heads.find(data) is None
