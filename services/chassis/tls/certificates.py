"""Every certificate of a process: read at start, and again every few seconds, so that a new one needs no restart."""

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar

import structlog
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily

from services.chassis.throttle import Throttle
from services.chassis.tls.contexts import LiveContext, client_context, server_context
from services.chassis.tls.material import BadCertificateError, Material, is_same, read
from services.chassis.tls.settings import EtcdTls, LinkTls, ListenerTls, PemFiles

log = structlog.get_logger()
T = TypeVar("T")
_HTTP, _HTTP2 = ("http/1.1",), ("h2",)
_ASKS = {"optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class Kept(Generic[T]):
    """One set of PEM files as last found good, and what was made of it. Raises BadCertificateError."""

    def __init__(self, use: str, files: PemFiles, make: Callable[[Material], T]) -> None:
        self.use = use
        self.files = files
        self.fault = ""  # why what lies there now is not in use
        self.on_change: Callable[[T], None] | None = None
        self._make = make
        self.material = read(files)
        self.value = make(self.material)

    def look(self) -> tuple[Material, T] | None:
        """What lies there, if it is something new; blocks. Raises BadCertificateError."""
        if is_same(self.files, self.material):
            return None
        material = read(self.files)
        return material, self._make(material)

    def take(self, material: Material, value: T) -> None:
        self.material, self.value = material, value
        if self.on_change is not None:
            self.on_change(value)


class ListenerSecurity:
    """A listener's certificate. `context` serves asyncio, `material` what else speaks TLS; both follow the files."""

    def __init__(self, kept: Kept[ssl.SSLContext], asks: Literal["none", "optional", "required"]) -> None:
        self._kept = kept
        self.asks = asks  # whether callers show a certificate
        self.context = LiveContext(lambda: kept.value)

    @property
    def material(self) -> Material:
        return self._kept.material


class LinkSecurity:
    """Both ends of links to other hosts: each shows a certificate, and judges the other's."""

    def __init__(self, kept: Kept[tuple[ssl.SSLContext, ssl.SSLContext]], peer_name: str) -> None:
        self._peer_name = peer_name
        self.server = LiveContext(lambda: kept.value[0])
        self.client = LiveContext(lambda: kept.value[1])

    def name_of(self, host: str) -> str:
        """What the certificate of a peer at `host` must name."""
        return self._peer_name or host

    def fault_of(self, peer: ssl.SSLObject) -> str:
        """What is wrong with a peer that has dialled; empty = nothing."""
        if peer.selected_alpn_protocol() != _HTTP2[0]:
            return "the peer does not offer HTTP/2"
        if not self._peer_name:
            return ""
        names: Any = (peer.getpeercert() or {}).get("subjectAltName", ())
        if ("DNS", self._peer_name) in names:
            return ""
        return f"the peer's certificate names {', '.join(name for _, name in names) or 'nobody'}, not {self._peer_name}"


class Certificates:
    """What a process shows and believes, by use: `listeners`, `metrics`, `links`, `etcd`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._kept: list[Kept[Any]] = []
        self._reloads = Counter(
            "turnout_certificate_reloads",
            "Changed certificate files by what became of them: taken, or refused while the old ones stay in use.",
            ["use", "outcome"],
            registry=registry,
        )
        self._refused = Counter(
            "turnout_tls_handshakes_refused",
            "TLS handshakes that failed over a certificate or the protocol, as this process saw them.",
            ["use"],
            registry=registry,
        )
        registry.register(self)

    def listener(self, use: str, tls: ListenerTls) -> ListenerSecurity | None:
        """None = plaintext. Raises BadCertificateError."""
        if (files := tls.files) is None:
            return None
        asks = tls.client_certificates if tls.client_ca else "none"
        verify = _ASKS.get(asks, ssl.CERT_NONE)
        refused = self._refusals(use)
        kept = Kept(use, files, lambda found: server_context(files, found, refused, alpn=_HTTP, asks=verify))
        return ListenerSecurity(self._keep(kept), asks)

    def links(self, tls: LinkTls) -> LinkSecurity | None:
        """None = plaintext. Raises BadCertificateError."""
        if (files := tls.files) is None:
            return None
        refused = self._refusals("links")

        def both(found: Material) -> tuple[ssl.SSLContext, ssl.SSLContext]:
            server = server_context(files, found, refused, alpn=_HTTP2, asks=ssl.CERT_REQUIRED)
            return server, client_context(files, found, refused, alpn=_HTTP2)

        return LinkSecurity(self._keep(Kept("links", files, both)), tls.peer_name or "")

    def etcd(self, tls: EtcdTls) -> Kept[Material] | None:
        """None = plaintext. Raises BadCertificateError."""
        return None if tls.files is None else self._keep(Kept("etcd", tls.files, lambda found: found))

    async def watch(self, every_s: float) -> None:
        """Take what changes, for ever; files are read on a thread."""
        while self._kept:
            await asyncio.sleep(every_s)
            for kept in self._kept:
                await self._renew(kept)

    def collect(self) -> list[GaugeMetricFamily]:
        """The metric of expiry, as it is when asked."""
        family = GaugeMetricFamily(
            "turnout_certificate_expiry_seconds",
            "Until the certificate in use expires; negative = it has.",
            labels=["use"],
        )
        for kept in self._kept:
            family.add_metric([kept.use], kept.material.expires - time.time())
        return [family]

    def _keep(self, kept: Kept[T]) -> Kept[T]:
        self._kept.append(kept)
        for outcome in ("taken", "refused"):
            self._reloads.labels(kept.use, outcome)
        log.info("certificate_in_use", use=kept.use, subject=kept.material.name, expires=_date(kept.material.expires))
        return kept

    async def _renew(self, kept: Kept[Any]) -> None:
        try:
            found = await asyncio.to_thread(kept.look)
        except BadCertificateError as error:
            if str(error) != kept.fault:  # else it was said already
                kept.fault = str(error)
                self._reloads.labels(kept.use, "refused").inc()
                until = _date(kept.material.expires)
                log.warning("certificate_refused", use=kept.use, reason=kept.fault, kept_until=until)
            return
        kept.fault = ""
        if found is not None:
            kept.take(*found)
            self._reloads.labels(kept.use, "taken").inc()
            log.info("certificate_taken", use=kept.use, subject=found[0].name, expires=_date(found[0].expires))

    def _refusals(self, use: str) -> Callable[[str], None]:
        counter, throttle = self._refused.labels(use), Throttle()

        def refused(reason: str) -> None:
            counter.inc()
            if count := throttle.count(time.monotonic_ns()):
                log.warning("handshake_refused", use=use, reason=reason, count=count)

        return refused


def _date(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
