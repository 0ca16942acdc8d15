"""From URLs to repositories."""

import sys

import pytest

from services.runtime.repositories import Repositories, public
from services.runtime.source import BadRepositoryError


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://ana:s%40cret@host:8443/models/?token=abc#x", "https://host:8443/models"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("http://host", "http://host"),
    ],
)
def test_what_is_shown_of_a_url_is_no_secret(url: str, shown: str) -> None:
    assert public(url) == shown


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", "no repository: set it"),
        ("ftp://ana:secret@host/m", "repository ftp://host/m: expected a path, file://, s3://"),
        ("s3://key:secret@bucket/m", r"repository s3://bucket/m: expected s3://BUCKET/PREFIX; credentials come from"),
        ("s3:///m", "expected s3://BUCKET/PREFIX"),
        ("https://host/m?token=secret", r"https://host/m: expected http\(s\)://HOST/PATH without a query"),
        ("file://host/m", "is neither a path nor file:///PATH"),
        ("http://ana:secret@[host/m", "a repository's URL cannot be read: Invalid IPv6 URL"),
    ],
)
def test_other_urls_are_refused_without_their_secrets(url: str, expected: str) -> None:
    with pytest.raises(BadRepositoryError, match=expected) as refused:
        Repositories().of(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [("s3://bucket", "s3fs", "s3"), ("gs://bucket", "gcsfs", "gs"), ("http://host/m", "fsspec", "http")],
)
def test_a_package_that_is_not_installed_is_named_with_its_extra(
    url: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BadRepositoryError, match=rf"turnout\[{extra}\]"):
        Repositories().of(url)


def test_one_url_is_one_repository() -> None:
    repositories = Repositories()

    assert repositories.of("http://ana:secret@host/models") is repositories.of("http://ana:secret@host/models")
    assert str(repositories.of("http://ana:secret@host/models")) == "http://host/models"
