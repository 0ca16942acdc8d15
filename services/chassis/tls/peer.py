"""The verified certificate that a caller showed: its subject, and the names it stands for."""

from functools import lru_cache
from typing import Any, NamedTuple

CERTIFICATE = ":certificate"  # among a call's metadata, as bytes; no caller can send a name that begins so


class PeerCertificate(NamedTuple):
    """`names` are its subject alternative names: "DNS:a.example", "URI:spiffe://a/b", "IP:10.0.0.1", "email:a@b"."""

    subject: str  # RFC 4514: "CN=alice,O=acme"
    common_name: str
    names: tuple[str, ...]


@lru_cache(maxsize=1024)
def peer_certificate(data: bytes) -> PeerCertificate:
    """What a certificate in PEM or DER says; only one that a listener has verified may be believed."""
    from cryptography import x509  # noqa: PLC0415 - memory that only TLS needs

    load = x509.load_pem_x509_certificate if data.startswith(b"-----") else x509.load_der_x509_certificate
    certificate = load(data)
    common = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return PeerCertificate(
        certificate.subject.rfc4514_string(), str(common[0].value) if common else "", _names(certificate)
    )


def _names(certificate: Any) -> tuple[str, ...]:
    from cryptography import x509  # noqa: PLC0415 - as above

    kinds = {
        x509.DNSName: "DNS",
        x509.UniformResourceIdentifier: "URI",
        x509.IPAddress: "IP",
        x509.RFC822Name: "email",
    }
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(f"{kinds[type(name)]}:{name.value}" for name in found if type(name) in kinds)


def shown_on_grpc(context: Any) -> bytes:
    """The caller's certificate on a grpc.aio call that is served with TLS; empty = it showed none."""
    pem: list[bytes] = context.auth_context().get("x509_pem_cert", [])
    return pem[0] if pem else b""


def shown_on(transport: Any) -> bytes:
    """The caller's certificate on an asyncio transport; empty = it showed none, or there is no TLS."""
    tls = transport.get_extra_info("ssl_object") if transport is not None else None
    return (tls.getpeercert(binary_form=True) or b"") if tls is not None else b""
