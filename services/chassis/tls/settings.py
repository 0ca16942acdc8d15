"""What a process is told of TLS: groups of settings, each PEM files and who is asked for a certificate. No I/O."""

from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, field_validator, model_validator


class PemFiles(NamedTuple):
    """Where one set of certificates lies; None = not given."""

    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _empty_is_none(cls, value: Any) -> Any:
        """A variable that is set to nothing: what deployments leave of an option that is not used."""
        return None if value == "" else value

    def _check_pair(self, certificate: Path | None, key: Path | None) -> None:
        if (certificate is None) != (key is None):
            given, missing = ("CERTIFICATE", "KEY") if key is None else ("KEY", "CERTIFICATE")
            raise ValueError(f"{given} is set and {missing} is not: set both, or neither")


class ListenerTls(_Group):
    """How a listener shows who it is, and whose certificates it asks for."""

    certificate: Path | None = None  # PEM, its chain behind it; empty = plaintext
    key: Path | None = None  # PEM of its private key, not encrypted
    client_ca: Path | None = None  # PEM: authorities of callers' certificates; empty = callers are asked for none
    client_certificates: Literal["optional", "required"] = "required"  # once CLIENT_CA is set

    @model_validator(mode="after")
    def _whole(self) -> Self:
        self._check_pair(self.certificate, self.key)
        if self.client_ca is not None and self.certificate is None:
            raise ValueError("CLIENT_CA is set and CERTIFICATE is not: a plaintext listener asks nobody for one")
        return self

    @property
    def files(self) -> PemFiles | None:
        """None = plaintext."""
        return PemFiles(self.certificate, self.key, self.client_ca) if self.certificate else None


class LinkTls(_Group):
    """Links between services on different hosts: both ends show a certificate. Unix sockets stay as they are."""

    certificate: Path | None = None  # PEM, shown by both ends of a link; empty = plaintext
    key: Path | None = None  # PEM of its private key, not encrypted
    ca: Path | None = None  # PEM: the authorities of the mesh's own certificates, and of nobody else's
    peer_name: str | None = None  # in every service's certificate; empty = that of the host that is dialled

    @model_validator(mode="after")
    def _whole(self) -> Self:
        names = ("certificate", "key", "ca")
        given = [name.upper() for name in names if getattr(self, name) is not None]
        missing = [name.upper() for name in names if getattr(self, name) is None]
        if (given and missing) or (self.peer_name and missing):
            raise ValueError(f"{', '.join(given) or 'PEER_NAME'} without {', '.join(missing)}: set all three, or none")
        return self

    @property
    def files(self) -> PemFiles | None:
        """None = plaintext."""
        return PemFiles(self.certificate, self.key, self.ca) if self.certificate else None


class EtcdTls(_Group):
    """How etcd is believed, and what it is shown."""

    ca: Path | None = None  # PEM: authorities of etcd's certificate; empty = plaintext
    certificate: Path | None = None  # PEM, where etcd asks for one
    key: Path | None = None  # PEM of its private key, not encrypted

    @model_validator(mode="after")
    def _whole(self) -> Self:
        self._check_pair(self.certificate, self.key)
        if self.certificate is not None and self.ca is None:
            raise ValueError("CERTIFICATE is set and CA is not: set CA to the authorities of etcd's certificate")
        return self

    @property
    def files(self) -> PemFiles | None:
        """None = plaintext."""
        return PemFiles(self.certificate, self.key, self.ca) if self.ca else None
