"""A model that is code and misbehaves: its file, which tests put into a repository, and what its first value does."""

SOURCE = '''
import ctypes
import os
import signal
import socket
import sys
import threading
import time

import numpy as np

KEPT = []


def leak():
    for _ in range(40):
        KEPT.append(np.ones(8 << 20, np.uint8))
        time.sleep(0.02)


def loop():
    while True:
        pass


def crash():
    ctypes.string_at(0)


def shout():
    line = b"x" * 999_999 + b"\\n"
    for _ in range(200):
        os.write(1, line)


def fork():
    for _ in range(12):
        if os.fork() == 0:
            time.sleep(300)
            os._exit(0)


def vanish():
    """A daemon: another session, no parent."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        daemon = os.fork()
        if daemon == 0:
            for number in (1, 2, reader, writer):
                os.close(number)
            time.sleep(300)
            os._exit(0)
        os.write(writer, daemon.to_bytes(4, "little"))
        os._exit(0)
    return int.from_bytes(os.read(reader, 4), "little")


def vanish_and_abort():
    KEPT.append(vanish())
    time.sleep(0.05)
    os.abort()


def open_files():
    for _ in range(400):
        try:
            KEPT.append(open("/dev/null"))
        except OSError:
            break


def threads():
    def fall():
        raise RuntimeError("a thread fell")

    for _ in range(20):
        threading.Thread(target=fall).start()


def hang_in_threads():
    KEPT.append(threading.Thread(target=loop))
    KEPT[-1].start()


def write_to_supervisor():
    """The files that came from the supervisor are cut off, and get rubbish; how many refused to be cut."""
    refused = 0
    for number in range(3, 64):
        link = f"/proc/self/fd/{number}"
        kind = os.readlink(link) if os.path.lexists(link) else ""
        try:
            if "turnout-stamp" in kind or kind.startswith("socket:"):
                os.ftruncate(number, 0)
        except OSError:
            refused += 1
        if kind.startswith("socket:") and is_pair(number):
            os.write(number, b"\\xff" * 4096)
    return refused


def is_pair(number):
    with socket.socket(fileno=os.dup(number)) as found:
        try:
            return found.family == socket.AF_UNIX and not found.getsockname() and not found.getpeername()
        except OSError:
            return False


def stamp():
    """Rubbish in the memory that the supervisor reads: the batch in progress began before there was time."""
    for number in range(3, 64):
        link = f"/proc/self/fd/{number}"
        if os.path.lexists(link) and "turnout-stamp" in os.readlink(link):
            os.pwrite(number, b"\\x80" * 24, 0)
            time.sleep(60)


def unlink():
    with open("/proc/net/unix") as sockets:
        mine = {os.fstat(n).st_ino for n in range(64) if os.path.exists(f"/proc/self/fd/{n}")}
        for line in sockets:
            fields = line.split()
            if len(fields) == 8 and fields[6].isdecimal() and int(fields[6]) in mine and "/w-" in fields[7]:
                os.unlink(fields[7])


ACTIONS = {
    101: leak, 102: loop, 103: os.abort, 104: crash, 105: shout, 106: fork, 107: vanish_and_abort, 108: open_files,
    109: lambda: sys.exit(3), 110: lambda: os._exit(3), 111: threads, 112: write_to_supervisor, 113: stamp, 114: unlink,
    115: hang_in_threads, 116: vanish,
}


class Model:
    inputs = {"x": ("FP32", [-1, 2])}
    outputs = {"y": ("FP64", [-1])}

    def predict(self, inputs):
        x = inputs["x"]
        action = ACTIONS.get(int(x[0, 0]))
        given = action() if action else None
        return {"y": x.sum(axis=1).astype(float) if given is None else np.full(len(x), given, float)}
'''

(LEAK, LOOP, ABORT, CRASH, SHOUT, FORK, VANISH_AND_ABORT, OPEN_FILES, SYS_EXIT, EXIT, THREADS, WRITE, STAMP, UNLINK,
 HANG_IN_THREADS, VANISH) = range(101, 117)  # fmt: skip

PROBE = '''
import json
import os
import resource


class Model:
    """One row of text: what its process finds around it."""

    inputs = {"x": ("FP32", [-1, 2])}
    outputs = {"y": ("BYTES", [-1])}
    batches = False

    def load(self, folder):
        self.files = {int(n): os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
                      if os.path.lexists(f"/proc/self/fd/{n}")}

    def predict(self, inputs):
        parent = os.getppid()
        status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
        found = {
            "environ": dict(os.environ),
            "files": self.files,
            "user": os.getuid(), "group": os.getgid(), "groups": os.getgroups(),
            "no_new_privs": status["NoNewPrivs"].strip(), "capabilities": status["CapEff"].strip(),
            "bounding": status["CapBnd"].strip(),
            "core": resource.getrlimit(resource.RLIMIT_CORE), "open": resource.getrlimit(resource.RLIMIT_NOFILE),
            "cpus": sorted(os.sched_getaffinity(0)),
            "parents_environ": attempt(lambda: open(f"/proc/{parent}/environ").read()),
            "stop_parent": attempt(lambda: os.kill(parent, 0)),
            "umask": os.umask(0o077),
        }
        return {"y": [json.dumps(found).encode()]}


def attempt(action):
    try:
        return repr(action())
    except OSError as error:
        return type(error).__name__
'''
