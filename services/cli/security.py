"""What a command believes and shows, by TURNOUT_TLS_CA and other variables; secrets come from them or from files."""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import grpc
import grpc.aio
from prometheus_client import CollectorRegistry
from pydantic import BaseModel, ValidationError

from services.chassis.etcd import EtcdClient, split_endpoints
from services.chassis.tls import (
    BadCertificateError,
    Certificates,
    EtcdTls,
    LinkSecurity,
    LinkTls,
    Material,
    PemFiles,
)
from services.chassis.tls.material import read
from services.cli.errors import CliError

TLS_CA, CERT, KEY = "TURNOUT_TLS_CA", "TURNOUT_CERT", "TURNOUT_KEY"
API_KEY, API_KEY_FILE = "TURNOUT_API_KEY", "TURNOUT_API_KEY_FILE"
SYSTEM = "system"
_ENOUGH_BYTES = 4096  # of a file that holds a secret

Group = TypeVar("Group", bound=BaseModel)


class Caller(NamedTuple):
    """Who this command is to a router, and whom it believes to be one."""

    is_secure: bool = False
    material: Material = Material(b"", b"", b"", 0.0, "")  # no authorities = those that this host believes
    files: PemFiles = PemFiles()
    api_key: str = ""

    @property
    def scheme(self) -> str:
        return "https" if self.is_secure else "http"

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    def channel(self, address: str, options: list[tuple[str, Any]]) -> grpc.aio.Channel:
        if not self.is_secure:
            return grpc.aio.insecure_channel(address, options=options)
        return grpc.aio.secure_channel(address, channel_credentials(self.material), options=options)

    def context(self) -> ssl.SSLContext | bool:
        """For aiohttp, which takes True for what it does by itself."""
        if not self.is_secure:
            return True
        context = ssl.create_default_context(cadata=self.material.ca.decode("latin-1") or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.files.certificate and self.files.key:
            context.load_cert_chain(self.files.certificate, self.files.key)
        return context


def caller(environ: Mapping[str, str] = os.environ) -> Caller:
    """Raises CliError."""
    given = {name: environ[name] for name in (TLS_CA, CERT, KEY) if environ.get(name)}
    if len(given) not in {0, 1, 3} or (given and TLS_CA not in given):
        raise CliError(f"{', '.join(given)} alone: give --cert and --key together, and --tls-ca with them", code=2)
    ca = None if given.get(TLS_CA) == SYSTEM else given.get(TLS_CA)
    files = PemFiles(*(Path(path) if path else None for path in (given.get(CERT), given.get(KEY), ca)))
    return Caller(bool(given), _read(files), files, secret(API_KEY, API_KEY_FILE, environ))


def link_security(environ: Mapping[str, str] = os.environ) -> LinkSecurity | None:
    """Of links to services, by LINK_TLS_CERTIFICATE and so on; None = plaintext. Raises CliError."""
    try:
        return Certificates(CollectorRegistry()).links(link_tls(environ))
    except BadCertificateError as error:
        raise CliError(str(error)) from None


def link_tls(environ: Mapping[str, str] = os.environ) -> LinkTls:
    return _group(LinkTls, "LINK_TLS_", environ)


def service_channel(address: str, options: list[tuple[str, Any]]) -> grpc.aio.Channel:
    """To a service's link port, as gRPC. Raises CliError."""
    tls = link_tls()
    if tls.files is None:
        return grpc.aio.insecure_channel(address, options=options)
    if tls.peer_name:
        options = [*options, ("grpc.ssl_target_name_override", tls.peer_name)]
    return grpc.aio.secure_channel(address, channel_credentials(_read(tls.files)), options=options)


def etcd_client(
    endpoints: str, prefix: str, *, timeout_s: float, environ: Mapping[str, str] = os.environ
) -> EtcdClient:
    """ETCD_USER and ETCD_PASSWORD, or ETCD_PASSWORD_FILE, log in; ETCD_TLS_CA and so on secure it. Raises CliError."""
    files = _group(EtcdTls, "ETCD_TLS_", environ).files
    try:
        return EtcdClient(
            split_endpoints(endpoints),
            prefix,
            user=environ.get("ETCD_USER", ""),
            password=secret("ETCD_PASSWORD", "ETCD_PASSWORD_FILE", environ),
            tls=_read(files) if files else None,
            timeout_s=timeout_s,
        )
    except ValueError as error:
        raise CliError(str(error)) from None


def channel_credentials(material: Material) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(material.ca or None, material.key or None, material.certificate or None)


def secret(name: str, file_name: str, environ: Mapping[str, str]) -> str:
    """The variable's value, or the first line of the file that the other one names. Raises CliError."""
    path = environ.get(file_name)
    if not path:
        return environ.get(name, "").strip()
    try:
        with Path(path).open() as file:
            return file.read(_ENOUGH_BYTES).partition("\n")[0].strip()
    except OSError as error:
        raise CliError(f"{file_name}: {path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise CliError(f"{file_name}: {path} is no text") from None


def _group(group: type[Group], prefix: str, environ: Mapping[str, str]) -> Group:
    values = {
        name: environ[f"{prefix}{name.upper()}"] for name in group.model_fields if prefix + name.upper() in environ
    }
    try:
        return group.model_validate(values)
    except ValidationError as error:
        said = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise CliError(f"{prefix.removesuffix('_')}: {said}") from None


def _read(files: PemFiles) -> Material:
    try:
        return read(files)
    except BadCertificateError as error:
        raise CliError(str(error)) from None
