"""Certificates read from PEM files and judged: what is wrong is said in one line that names the file."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from services.chassis.tls.settings import PemFiles

_MAX_FILE_BYTES = 1 << 20


class BadCertificateError(Exception):
    """PEM files that cannot be used; the message has the file's name, and what would be right."""


class Material(NamedTuple):
    """PEM files as they were read; empty = not given."""

    certificate: bytes
    key: bytes
    ca: bytes
    expires: float  # of the certificate, else of the authority that is left last; seconds since the epoch
    name: str  # the certificate's subject


def read(files: PemFiles) -> Material:
    """Read and judge. Raises BadCertificateError."""
    certificate, key, ca = (_bytes(path) if path else b"" for path in files)
    expires, name = 0.0, ""
    if files.ca:
        expires = _judge_authorities(files.ca, ca)
    if files.certificate and files.key:
        own = _certificates(files.certificate, certificate)[0]
        expires, name = _judge(files, own, _private_key(files.key, key))
    return Material(certificate, key, ca, expires, name)


def is_same(files: PemFiles, material: Material) -> bool:
    """Whether the files hold what was read. Raises BadCertificateError."""
    return tuple(_bytes(path) if path else b"" for path in files) == material[:3]


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise BadCertificateError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > _MAX_FILE_BYTES:
        raise BadCertificateError(f"{path}: expected PEM, found more than {_MAX_FILE_BYTES} bytes")
    return data


def _certificates(path: Path, data: bytes) -> Sequence[Any]:
    from cryptography import x509  # noqa: PLC0415 - 10 MB of memory that only TLS needs

    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError:
        raise BadCertificateError(f"{path}: expected certificates in PEM, found none that can be read") from None


def _private_key(path: Path, data: bytes) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        return load_pem_private_key(data, None)
    except TypeError:
        raise BadCertificateError(f"{path}: the key is encrypted; expected one that is not") from None
    except (ValueError, UnsupportedAlgorithm):
        raise BadCertificateError(f"{path}: expected a private key in PEM, found none that can be read") from None


def _judge(files: PemFiles, certificate: Any, key: Any) -> tuple[float, str]:
    """Its end and its name. What is in a certificate is read only now, and may be what no library knows."""
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - as above

    try:
        _judge_dates(files.certificate, certificate)
        _judge_pair(files, certificate, key)
        return certificate.not_valid_after_utc.timestamp(), certificate.subject.rfc4514_string()
    except (ValueError, UnsupportedAlgorithm):
        raise BadCertificateError(f"{files.certificate}: the certificate is of a kind that cannot be read") from None


def _judge_dates(path: Path | None, certificate: Any) -> None:
    begins, ends, now = certificate.not_valid_before_utc, certificate.not_valid_after_utc, datetime.now(UTC)
    if now >= ends:
        raise BadCertificateError(f"{path}: the certificate expired on {ends:%Y-%m-%d %H:%M} UTC")
    if now < begins:
        raise BadCertificateError(f"{path}: the certificate is not valid before {begins:%Y-%m-%d %H:%M} UTC")


def _judge_pair(files: PemFiles, certificate: Any, key: Any) -> None:
    if certificate.public_key() != key.public_key():
        raise BadCertificateError(f"{files.key}: is not the key of the certificate in {files.certificate}")


def _judge_authorities(path: Path, data: bytes) -> float:
    """When the last of them expires; one that is over already among others is nobody's fault."""
    last: datetime = max(each.not_valid_after_utc for each in _certificates(path, data))
    if last <= datetime.now(UTC):
        raise BadCertificateError(f"{path}: every authority in it has expired, the last on {last:%Y-%m-%d %H:%M} UTC")
    return last.timestamp()
