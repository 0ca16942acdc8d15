"""What a worker tells its supervisor: messages turnout.v1.Instance, each after its length, on an inherited socket.

READY comes with the signature; FAILED means that starting again is useless, BACKOFF that it may help, LOADING that it
will once something elsewhere is there.
"""

import asyncio
import socket
import struct

from google.protobuf.message import DecodeError

from turnout.v1 import runtime_pb2 as pb

_LENGTH = struct.Struct("<I")
_MAX_BYTES = 256 << 10  # all instances of a pod must fit into one message to its batcher


def send(channel: socket.socket, report: pb.Instance) -> None:
    """Write one report; blocks until the kernel has taken it."""
    payload = report.SerializeToString()
    channel.sendall(_LENGTH.pack(len(payload)) + payload)


async def receive(reader: asyncio.StreamReader) -> pb.Instance | None:
    """The next report; None when the worker is gone or what it says is no report."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > _MAX_BYTES:
            return None
        return pb.Instance.FromString(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError, DecodeError):
        return None
