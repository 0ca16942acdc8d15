"""What a client certificate calls its holder. It was verified by whoever took the connection."""

from functools import lru_cache

from cryptography import x509

Names = tuple[str, tuple[str, ...]]  # the subject as RFC 4514 writes it, and KIND:NAME of its alternatives
_PEM = b"-----BEGIN"


@lru_cache(maxsize=1024)
def names_of(certificate: bytes) -> Names:
    """Subject and alternative names of a certificate in PEM or DER; nothing where it cannot be read."""
    try:
        read = x509.load_pem_x509_certificate if certificate.startswith(_PEM) else x509.load_der_x509_certificate
        found = read(certificate)
        subject = found.subject.rfc4514_string()
        try:
            names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return subject, ()
        return subject, tuple(_named(name) for name in names)
    except ValueError:
        return "", ()


def _named(name: x509.GeneralName) -> str:
    kinds = {x509.DNSName: "DNS", x509.UniformResourceIdentifier: "URI", x509.RFC822Name: "email", x509.IPAddress: "IP"}
    return f"{kinds.get(type(name), 'other')}:{name.value}"
