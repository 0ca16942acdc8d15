from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from services.router.access.certificates import names_of
from tests.support.credentials import ec_key


def certificate(*names: x509.GeneralName) -> x509.Certificate:
    key = ec_key()
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Acme, Inc"), x509.NameAttribute(NameOID.COMMON_NAME, "shop")]
    )
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(subject, subject, key.public_key(), 1, now, now + timedelta(days=1))
    if names:
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return made.sign(key, SHA256())


def test_a_certificate_is_read_in_both_encodings() -> None:
    shown = certificate(
        x509.DNSName("shop.svc"),
        x509.UniformResourceIdentifier("spiffe://acme/shop"),
        x509.RFC822Name("shop@acme.example"),
        x509.IPAddress(ip_address("10.0.0.1")),
    )
    names = ("DNS:shop.svc", "URI:spiffe://acme/shop", "email:shop@acme.example", "IP:10.0.0.1")

    for encoding in (Encoding.PEM, Encoding.DER):
        assert names_of(shown.public_bytes(encoding)) == ("CN=shop,O=Acme\\, Inc", names)
    assert names_of(certificate().public_bytes(Encoding.DER)) == ("CN=shop,O=Acme\\, Inc", ())


def test_what_is_no_certificate_names_nobody() -> None:
    assert names_of(b"") == names_of(b"-----BEGIN nonsense") == names_of(b"\x30\x00") == ("", ())
