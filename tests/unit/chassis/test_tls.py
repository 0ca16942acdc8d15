import asyncio
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from prometheus_client import CollectorRegistry

from services.chassis.app import App
from services.chassis.config import BadConfigError, ServiceConfig
from services.chassis.tls import BadCertificateError, Certificates, ListenerTls, PemFiles
from services.chassis.tls.material import read
from tests.support.certificates import Authority, Pair, pem_of

AUTHORITY = Authority()
GOOD = AUTHORITY.issue("service", "service.example")
OTHER = AUTHORITY.issue("other")


def written(folder: Path, pair: Pair = GOOD, ca: bytes = AUTHORITY.pem) -> PemFiles:
    names = pair.write(folder)
    (folder / "ca.pem").write_bytes(ca)
    return PemFiles(Path(names["certificate"]), Path(names["key"]), folder / "ca.pem")


def test_a_good_pair_is_read_with_its_name_and_its_end(tmp_path: Path) -> None:
    found = read(written(tmp_path))

    assert found[:3] == (GOOD.certificate, GOOD.key, AUTHORITY.pem)
    assert found.name == "CN=service"
    assert 1.9 * 86_400 < found.expires - time.time() < 2.1 * 86_400


ENCRYPTED = pem_of(ec.generate_private_key(ec.SECP256R1()), b"word")
_CURVE = bytes.fromhex("06082a8648ce3d030107")  # P-256, as a certificate names its key's
_UNKNOWN = ssl.PEM_cert_to_DER_cert(GOOD.certificate.decode()).replace(_CURVE, _CURVE[:-1] + b"\x63")
ODD = ssl.DER_cert_to_PEM_cert(_UNKNOWN).encode()
EXPIRED = AUTHORITY.issue("service", days=(-2, -1))
EARLY = AUTHORITY.issue("service", days=(1, 2))


@pytest.mark.parametrize(
    ("pair", "ca", "file", "said"),
    [
        (EXPIRED, AUTHORITY.pem, "cert.pem", "the certificate expired on 20"),
        (EARLY, AUTHORITY.pem, "cert.pem", "the certificate is not valid before 20"),
        (Pair(GOOD.certificate, OTHER.key), AUTHORITY.pem, "key.pem", "is not the key of the certificate in "),
        (Pair(GOOD.certificate, ENCRYPTED), AUTHORITY.pem, "key.pem", "the key is encrypted"),
        (Pair(GOOD.certificate, b"key"), AUTHORITY.pem, "key.pem", "expected a private key in PEM"),
        (Pair(ODD, GOOD.key), AUTHORITY.pem, "cert.pem", "the certificate is of a kind that cannot be read"),
        (Pair(b"certificate", GOOD.key), AUTHORITY.pem, "cert.pem", "expected certificates in PEM"),
        (Pair(GOOD.key, GOOD.key), AUTHORITY.pem, "cert.pem", "expected certificates in PEM"),
        (GOOD, b"", "ca.pem", "expected certificates in PEM"),
        (GOOD, EXPIRED.certificate, "ca.pem", "every authority in it has expired"),
        (GOOD, b"-" * (2 << 20), "ca.pem", "found more than 1048576 bytes"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_file(
    pair: Pair, ca: bytes, file: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(BadCertificateError) as caught:
        read(written(tmp_path, pair, ca))

    message = str(caught.value)
    assert message.startswith(f"{tmp_path / file}: ")
    assert said in message
    assert "\n" not in message


@pytest.mark.parametrize("missing", ["certificate", "key", "ca"])
def test_a_file_that_is_not_there_is_named(missing: str, tmp_path: Path) -> None:
    files = written(tmp_path)._replace(**{missing: tmp_path / "absent.pem"})

    with pytest.raises(BadCertificateError, match=r"absent\.pem: cannot be read: No such file or directory"):
        read(files)


PREFIX = "TURNOUT_X_"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"METRICS_TLS_KEY": "k"}, "METRICS_TLS: KEY is set and CERTIFICATE is not: set both, or neither"),
        ({"METRICS_TLS_CERTIFICATE": "c"}, "METRICS_TLS: CERTIFICATE is set and KEY is not: set both, or neither"),
        ({"METRICS_TLS_CLIENT_CA": "c"}, "METRICS_TLS: CLIENT_CA is set and CERTIFICATE is not"),
        ({"METRICS_TLS_CLIENT_CERTIFICATES": "maybe"}, "METRICS_TLS_CLIENT_CERTIFICATES: Input should be 'optional'"),
        ({"METRICS_TLS_CERT": "c"}, "METRICS_TLS_CERT: unknown setting"),
        ({"LINK_TLS_KEY": "k"}, "LINK_TLS: KEY without CERTIFICATE, CA: set all three, or none"),
        ({"LINK_TLS_PEER_NAME": "p"}, "LINK_TLS: PEER_NAME without CERTIFICATE, KEY, CA: set all three, or none"),
        ({"ETCD_TLS_CERTIFICATE": "c", "ETCD_TLS_KEY": "k"}, "ETCD_TLS: CERTIFICATE is set and CA is not"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(settings: dict[str, str], said: str) -> None:
    with pytest.raises(BadConfigError) as caught:
        ServiceConfig.load(PREFIX, {PREFIX + name: value for name, value in settings.items()})

    (line,) = str(caught.value).splitlines()
    assert line.startswith(PREFIX + said)


def test_a_group_is_read_from_environment_and_file_and_nothing_is_nothing(tmp_path: Path) -> None:
    path = tmp_path / "turnout.toml"
    path.write_text('[x.metrics_tls]\ncertificate = "c.pem"\nkey = "k.pem"\n')
    environ = {"TURNOUT_CONFIG": str(path), f"{PREFIX}METRICS_TLS_KEY": "other.pem", f"{PREFIX}LINK_TLS_KEY": ""}

    config = ServiceConfig.load(PREFIX, environ)

    assert config.metrics_tls.files == PemFiles(Path("c.pem"), Path("other.pem"), None)
    assert config.link_tls.files is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (lambda cert, key: {"METRICS_TLS_CERTIFICATE": cert, "METRICS_TLS_KEY": key}, "TURNOUT_X_METRICS_TLS: /"),
        (
            lambda cert, key: {"LINK_TLS_CERTIFICATE": cert, "LINK_TLS_KEY": key, "LINK_TLS_CA": cert},
            "TURNOUT_X_LINK_TLS: /",
        ),
        (lambda cert, _: {"ETCD_TLS_CA": cert}, "TURNOUT_X_ETCD_TLS: /"),
        (lambda *_: {"ETCD_ENDPOINTS": "https://etcd:2379"}, "ETCD_ENDPOINTS: etcd: https://etcd:2379 asks for TLS"),
        (lambda cert, _: {"ETCD_PASSWORD_FILE": f"{cert}x"}, "ETCD_PASSWORD_FILE: /"),
        (lambda cert, _: {"ETCD_PASSWORD_FILE": cert, "ETCD_PASSWORD": "p"}, "ETCD_PASSWORD and ETCD_PASSWORD_FILE"),
    ],
)
async def test_a_service_does_not_start_with_files_that_it_cannot_use(
    settings: Callable[[str, str], dict[str, str]], said: str, tmp_path: Path
) -> None:
    names = EXPIRED.write(tmp_path)
    chosen = settings(names["certificate"], names["key"])
    config = ServiceConfig.load(PREFIX, {PREFIX + name: value for name, value in chosen.items()})

    with pytest.raises(BadConfigError) as caught:
        App("x", config)

    (line,) = str(caught.value).splitlines()
    assert line.startswith(said)


def test_a_password_may_lie_in_a_file_and_is_never_shown(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("hush-1\n")
    in_file = ServiceConfig.load(PREFIX, {f"{PREFIX}ETCD_PASSWORD_FILE": str(tmp_path / "word")})
    in_environment = ServiceConfig.load(PREFIX, {f"{PREFIX}ETCD_PASSWORD": "hush-2"})

    assert (in_file.password(), in_environment.password()) == ("hush-1", "hush-2")
    assert "hush" not in f"{in_file!r} {in_environment!r} {in_environment.model_dump_json()}"
    with pytest.raises(BadConfigError) as caught:
        ServiceConfig.load(PREFIX, {f"{PREFIX}ETCD_PASSWORD": "hush-2", f"{PREFIX}DRAIN_S": "soon"})
    assert "hush" not in str(caught.value)


async def test_files_that_change_are_taken_and_bad_ones_refused_once(tmp_path: Path) -> None:
    names = GOOD.write(tmp_path)
    registry = CollectorRegistry()
    certificates = Certificates(registry)
    security = certificates.listener("listeners", ListenerTls.model_validate(names))
    assert security is not None

    def reloads(outcome: str) -> float | None:
        labels = {"use": "listeners", "outcome": outcome}
        return registry.get_sample_value("turnout_certificate_reloads_total", labels)

    async def until(check: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not check():
                await asyncio.sleep(0.005)

    watch = asyncio.create_task(certificates.watch(0.005))
    try:
        Pair(OTHER.certificate, GOOD.key).write(tmp_path)
        await until(lambda: reloads("refused"))
        assert security.material.certificate == GOOD.certificate
        OTHER.write(tmp_path)
        await until(lambda: reloads("taken"))
        assert security.material[:2] == (OTHER.certificate, OTHER.key)
    finally:
        watch.cancel()
    assert (reloads("refused"), reloads("taken")) == (1, 1)
    expiry = registry.get_sample_value("turnout_certificate_expiry_seconds", {"use": "listeners"})
    assert expiry == pytest.approx(2 * 86_400, abs=600)
