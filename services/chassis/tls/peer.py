"""The certificate that a caller showed and a listener verified."""

from typing import Any


def shown_on(transport: Any) -> bytes:
    """On an asyncio transport, in DER; empty = the caller showed none, or there is no TLS."""
    tls = transport.get_extra_info("ssl_object") if transport is not None else None
    return (tls.getpeercert(binary_form=True) or b"") if tls is not None else b""
