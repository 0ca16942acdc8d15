"""The certificate that a caller showed and a listener verified, as bytes: PEM from gRPC, DER from asyncio."""

from typing import Any


def shown_on_grpc(context: Any) -> bytes:
    """The caller's certificate on a grpc.aio call; empty = it showed none, or there is no TLS."""
    pem: list[bytes] = context.auth_context().get("x509_pem_cert", [])
    return pem[0] if pem else b""


def shown_on(transport: Any) -> bytes:
    """The caller's certificate on an asyncio transport; empty = it showed none, or there is no TLS."""
    tls = transport.get_extra_info("ssl_object") if transport is not None else None
    return (tls.getpeercert(binary_form=True) or b"") if tls is not None else b""
