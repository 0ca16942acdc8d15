import resource
import signal
import subprocess
import sys

from services.chassis import process


def run(code: str) -> subprocess.CompletedProcess[str]:
    program = f"import os, signal\nfrom services.chassis import process\n{code}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


def test_a_parent_that_is_gone_already_counts_as_dead() -> None:
    gone = run("process.die_with_parent(os.getppid() + 1); print('alive')")

    assert (gone.returncode, gone.stdout) == (-signal.SIGTERM, "")


def test_with_its_parent_alive_a_process_goes_on() -> None:
    assert run("process.die_with_parent(os.getppid(), signal.SIGKILL); print('alive')").stdout == "alive\n"


def test_two_processes_of_one_host_agree_on_its_id() -> None:
    assert run("print(process.host_id())").stdout.strip() == process.host_id()


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    done = run(
        "import resource\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))\n"
        "print(process.raise_file_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )

    wanted = min(hard, 1 << 20) if hard != resource.RLIM_INFINITY else 1 << 20
    assert done.stdout.split() == [str(wanted)] * 2
