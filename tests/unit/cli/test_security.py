from pathlib import Path

import pytest

from services.cli.errors import CliError
from services.cli.security import caller, etcd_client, link_security, secret
from tests.support.certificates import Authority

AUTHORITY = Authority()


def test_without_variables_there_is_no_tls_and_no_key() -> None:
    who = caller({"TURNOUT_CERT": ""})

    assert (who.is_secure, who.scheme, who.headers, who.context()) == (False, "http", {}, True)
    assert link_security({}) is None


def test_files_and_keys_are_read_from_what_the_variables_name(tmp_path: Path) -> None:
    names = AUTHORITY.issue("alice").write(tmp_path)
    (tmp_path / "word").write_text("tk_a.b\nmore")
    environ = {"TURNOUT_TLS_CA": AUTHORITY.write(tmp_path / "ca.pem"), "TURNOUT_API_KEY_FILE": str(tmp_path / "word")}

    who = caller(environ | {"TURNOUT_CERT": names["certificate"], "TURNOUT_KEY": names["key"]})

    assert (who.scheme, who.headers) == ("https", {"authorization": "Bearer tk_a.b"})
    assert (who.material.ca, who.material.name) == (AUTHORITY.pem, "CN=alice")
    assert caller({"TURNOUT_TLS_CA": "system"}).material.ca == b""


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"TURNOUT_CERT": "c", "TURNOUT_KEY": "k"}, "TURNOUT_CERT, TURNOUT_KEY alone: give --cert and --key together"),
        ({"TURNOUT_TLS_CA": "a", "TURNOUT_KEY": "k"}, "TURNOUT_TLS_CA, TURNOUT_KEY alone"),
        ({"TURNOUT_TLS_CA": "/absent.pem"}, "/absent.pem: cannot be read: No such file"),
        ({"TURNOUT_API_KEY_FILE": "/absent"}, "TURNOUT_API_KEY_FILE: /absent cannot be read: No such file"),
    ],
)
def test_what_does_not_fit_together_is_said(environ: dict[str, str], said: str) -> None:
    with pytest.raises(CliError) as caught:
        caller(environ)

    assert str(caught.value).startswith(said)


def test_what_the_variables_of_links_and_etcd_lack_is_said() -> None:
    with pytest.raises(CliError, match=r"^LINK_TLS: KEY without CERTIFICATE, CA: set all three, or none$"):
        link_security({"LINK_TLS_KEY": "k"})
    with pytest.raises(CliError, match=r"^ETCD_TLS: KEY is set and CERTIFICATE is not"):
        etcd_client("127.0.0.1:1", "/", timeout_s=1, environ={"ETCD_TLS_KEY": "k"})
    with pytest.raises(CliError, match="asks for TLS: name the authorities"):
        etcd_client("https://127.0.0.1:1", "/", timeout_s=1, environ={})


def test_a_secret_that_is_no_text_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "word").write_bytes(b"hush\xff")

    with pytest.raises(CliError) as caught:
        secret("WORD", "WORD_FILE", {"WORD_FILE": str(tmp_path / "word")})
    assert str(caught.value) == f"WORD_FILE: {tmp_path / 'word'} is no text"
