import asyncio
import subprocess
from pathlib import Path

import pytest

from services.chassis.etcd import EtcdClient, EtcdProcess, EtcdStartError, EtcdUnavailableError, TlsFiles
from services.chassis.tls import PemFiles
from services.chassis.tls.material import read as material
from tests.integration.etcd.support import eventually, observed


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=20)


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    """A certificate for 127.0.0.1, of an authority of its own."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    openssl(tmp_path, "req", "-x509", *key, "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    names = ("-subj", "/CN=etcd", "-addext", "subjectAltName=IP:127.0.0.1")
    openssl(tmp_path, "req", "-new", *key[:-2], *names, "-keyout", "key.pem", "-out", "request.pem")
    signer = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-copy_extensions", "copy")
    openssl(tmp_path, "x509", "-req", "-in", "request.pem", *signer, "-out", "cert.pem")
    return TlsFiles(tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem")


async def test_a_client_with_a_certificate_is_served_and_others_are_not(files: TlsFiles, tmp_path: Path) -> None:
    async with EtcdProcess(tmp_path / "etcd", fsync=False, tls=files) as etcd:
        client = EtcdClient([f"https://{etcd.endpoint}"], tls=files)
        async with observed(client) as it:
            await client.put("routes/a", b"1")
            await eventually(lambda: it.values == {"routes/a": b"1"})
        await client.close()

        for stranger in (EtcdClient([etcd.endpoint]), EtcdClient([etcd.endpoint], tls=TlsFiles(files.ca))):
            with pytest.raises(EtcdUnavailableError):
                await stranger.get("routes/a")
            await stranger.close()


async def test_a_missing_certificate_is_named(files: TlsFiles, tmp_path: Path) -> None:
    absent = files._replace(cert=tmp_path / "absent.pem")

    with pytest.raises(EtcdStartError, match=r"absent\.pem: No such file"):
        await EtcdProcess(tmp_path / "etcd", tls=absent).start()


async def test_a_client_takes_other_certificates_with_no_call_lost(files: TlsFiles, tmp_path: Path) -> None:
    """Its watch is opened anew when the connections with the old one are closed."""
    async with EtcdProcess(tmp_path / "etcd", fsync=False, tls=files) as etcd:
        client = EtcdClient([etcd.endpoint], tls=files, timeout_s=4)
        ended = asyncio.Event()

        async def write() -> int:
            count = 0
            while not ended.is_set():
                count += 1
                await client.put("routes/count", b"%d" % count)
            return count

        async with observed(client) as it:
            writer = asyncio.create_task(write())
            client.renew(material(PemFiles(files.cert, files.key, files.ca)))
            await eventually(lambda: not client._connection._leaving, 30)  # the old connections are closed
            ended.set()
            count = await writer
            await eventually(lambda: it.values == {"routes/count": b"%d" % count}, 30)
        await client.close()
