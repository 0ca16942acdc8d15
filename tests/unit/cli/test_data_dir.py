import subprocess
import sys
from pathlib import Path

import pytest

from services.cli.data_dir import DataDir, Running, RunningProcess
from services.cli.errors import CliError

HOLD = """
import sys, time
from pathlib import Path
from services.cli.data_dir import DataDir
with DataDir(Path(sys.argv[1])).locked():
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path / "data").create()


def running(pid: int = 7) -> Running:
    process = RunningProcess(name="router", addresses={"GRPC_ADDRESS": "127.0.0.1:1"})
    return Running(pid=pid, etcd="127.0.0.1:2", processes=(process,))


def test_a_second_mesh_in_one_folder_is_refused_in_one_line(data: DataDir) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, data.root], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        data.write(running(holder.pid))
        with pytest.raises(CliError, match=rf"a mesh runs in .* already \(process {holder.pid}\)"), data.locked():
            pass
        holder.kill()
    with data.locked():
        pass


def test_what_runs_is_known_only_while_it_runs(data: DataDir) -> None:
    with data.locked():
        data.write(running())

        assert data.read() == running()
    assert data.read() is None


def test_an_address_is_found_by_process_and_setting() -> None:
    assert running().address("router", "GRPC_ADDRESS") == "127.0.0.1:1"
    assert running().address("router", "REST_ADDRESS") is None
    assert running().address("batcher-0", "GRPC_ADDRESS") is None


def test_a_folder_keeps_to_the_repository_it_began_with(data: DataDir) -> None:
    data.claim("/models")
    data.claim("/models")

    with pytest.raises(CliError, match="keeps a mesh of /models"):
        data.claim("/others")


def test_the_folder_for_sockets_has_a_short_path_wherever_the_data_lies(tmp_path: Path) -> None:
    deep = DataDir(tmp_path / ("d" * 80)).create()

    folder = deep.run_folder()

    assert folder.is_dir()
    assert len(bytes(folder)) <= 45
    assert folder == deep.run_folder() != DataDir(tmp_path / ("e" * 80)).create().run_folder()


def test_a_folder_that_cannot_be_made_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(CliError, match="cannot make the data folder"):
        DataDir(tmp_path / "file" / "data").create()
