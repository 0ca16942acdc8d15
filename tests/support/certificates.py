"""Authorities and certificates for tests, made in a moment."""

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Pair(NamedTuple):
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path) -> dict[str, str]:
        """Put them, or what takes their place, into `folder`; gives the settings that name them."""
        folder.mkdir(parents=True, exist_ok=True)
        found = {"certificate": folder / "cert.pem", "key": folder / "key.pem"}
        for name, data in (("key", self.key), ("certificate", self.certificate)):
            fresh = found[name].with_suffix(".new")
            fresh.write_bytes(data)
            fresh.replace(found[name])  # whoever reads it finds the old or the new one
        return {name: str(path) for name, path in found.items()}


class Authority:
    """It signs what it is asked to."""

    def __init__(self, name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self.certificate = self._sign(self._name, self._key, days=(-1, 2), is_authority=True)
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str, *also: str, days: tuple[float, float] = (-1, 2)) -> Pair:
        """A certificate for 127.0.0.1, localhost and `also` (URIs, DNS names), valid between `days` from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(_name(name), key, days=days, names=("localhost", "127.0.0.1", *also))
        return Pair(certificate.public_bytes(serialization.Encoding.PEM), pem_of(key))

    def write(self, path: Path) -> str:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.pem)
        return str(path)

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        days: tuple[float, float],
        names: tuple[str, ...] = (),
        is_authority: bool = False,
    ) -> x509.Certificate:
        begins, ends = (datetime.now(UTC) + timedelta(days=each) for each in days)
        builder = (
            x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number(), begins, ends)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(n) for n in names]), False)
        return builder.sign(self._key, hashes.SHA256())


class Caller(NamedTuple):
    """How a client sees a TLS listener: whom it believes and what it shows."""

    authority: Authority
    pair: Pair | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        key, certificate = (self.pair.key, self.pair.certificate) if self.pair else (None, None)
        return grpc.ssl_channel_credentials(self.authority.pem, key, certificate)

    def context(self, folder: Path) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.authority.pem.decode())
        if self.pair:
            names = self.pair.write(folder)
            context.load_cert_chain(names["certificate"], names["key"])
        return context


def pem_of(key: ec.EllipticCurvePrivateKey, password: bytes = b"") -> bytes:
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])


def _alternative(name: str) -> x509.GeneralName:
    if "://" in name:
        return x509.UniformResourceIdentifier(name)
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
