"""ssl.SSLContext from PEM files: TLS 1.2 and later, no session outlives its certificate."""

import ssl
from collections.abc import Callable, Sequence
from typing import Any, Self

from services.chassis.tls.material import BadCertificateError, Material
from services.chassis.tls.settings import PemFiles

Refused = Callable[[str], None]
_NO_TLS = "the peer does not speak TLS"
_OTHER_PROTOCOLS = {"wrong version number", "http request", "unknown protocol", "packet length too long"}


class LiveContext(ssl.SSLContext):
    """Hands each new connection to the context that `current` gives: so certificates change without a restart."""

    _current: Callable[[], ssl.SSLContext]

    def __new__(cls, current: Callable[[], ssl.SSLContext]) -> Self:
        made = super().__new__(cls, current().protocol)
        made._current = current
        return made

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        return self._current().wrap_bio(*args, **options)


class _Context(ssl.SSLContext):
    """One that tells of handshakes that failed: asyncio keeps that to itself."""

    refused: Refused

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **options: Any) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, *args, **options)
        if isinstance(made, _Handshake):
            made.outgoing = outgoing
        return made


class _Handshake(ssl.SSLObject):
    outgoing: ssl.MemoryBIO
    _failed: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        if self._failed is not None:
            raise self._failed
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLEOFError):
            raise  # it goes on, or the peer went away: a port scan, a probe
        except ssl.SSLError as error:
            context = self.context
            if isinstance(context, _Context):
                context.refused(reason_of(error))
            if not (self.server_side and self.outgoing.pending):
                raise
            self._failed = error
            # An event loop drops what is unsent when a handshake fails. Told to wait, it sends the alert, by which the
            # peer learns why; then the peer hangs up, or the time for the handshake ends.
            raise ssl.SSLWantReadError from error


def server_context(
    files: PemFiles, material: Material, refused: Refused, *, alpn: Sequence[str], asks: ssl.VerifyMode
) -> ssl.SSLContext:
    """For listeners. `asks`: whether callers must show a certificate of `material.ca`, may, or are not asked."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, files, material, refused, alpn)
    context.verify_mode = asks
    context.num_tickets = 0  # a resumed session would not be judged by the authorities of today
    context.options |= ssl.OP_NO_TICKET
    return context


def client_context(files: PemFiles, material: Material, refused: Refused, *, alpn: Sequence[str]) -> ssl.SSLContext:
    """For dialling: the other side must be what it is dialled as, by an authority of `material.ca`."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, files, material, refused, alpn)


def reason_of(error: ssl.SSLError) -> str:
    """In words: what OpenSSL says of the certificate, else of the handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate was not accepted: {error.verify_message}"
    reason = (error.reason or str(error)).lower().replace("_", " ")
    return _NO_TLS if reason in _OTHER_PROTOCOLS else reason


def _context(
    protocol: int, files: PemFiles, material: Material, refused: Refused, alpn: Sequence[str]
) -> ssl.SSLContext:
    context = _Context(protocol)
    context.refused = refused
    context.sslobject_class = _Handshake
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if material.ca:
            context.load_verify_locations(cadata=material.ca.decode("latin-1"))
        if files.certificate and files.key:
            context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise BadCertificateError(f"{files.certificate or files.ca}: {reason(error)}") from None
    context.set_alpn_protocols(list(alpn))
    return context


def reason(error: Exception) -> str:
    return reason_of(error) if isinstance(error, ssl.SSLError) else str(error)


def _no_password() -> str:
    """Else OpenSSL would ask at the terminal."""
    return ""
