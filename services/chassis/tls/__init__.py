"""TLS by settings: what listeners, links and etcd's client show and believe, renewed without a restart."""

from services.chassis.tls.certificates import Certificates, Kept, LinkSecurity, ListenerSecurity
from services.chassis.tls.material import BadCertificateError, Material
from services.chassis.tls.peer import shown_on
from services.chassis.tls.settings import EtcdTls, LinkTls, ListenerTls, PemFiles

__all__ = [
    "BadCertificateError",
    "Certificates",
    "EtcdTls",
    "Kept",
    "LinkSecurity",
    "LinkTls",
    "ListenerSecurity",
    "ListenerTls",
    "Material",
    "PemFiles",
    "shown_on",
]
