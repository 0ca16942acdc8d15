"""Addresses that a service listens on, and one clear line when it cannot."""

import errno
import os
import re
import socket
from ipaddress import ip_address
from typing import Self

_PLACE = re.compile(r"\('(?P<host>[^']+)', (?P<port>\d+)|Address '(?P<path>[^']+)'")
_ABOUT_ADDRESSES = {errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES}


class CannotListenError(Exception):
    """An address that cannot be listened on; the message is one line that says which and why."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address} {reason}")
        self.address = address

    @classmethod
    def explain(cls, address: str, error: Exception) -> Self:
        """The line for `error`, raised by an attempt to listen on `address`."""
        text = str(error).lower()
        number = error.errno if isinstance(error, OSError) else None
        if number == errno.EADDRINUSE or "in use" in text or "failed to bind" in text:
            return cls(address, "is in use: another process listens there")
        return cls(address, f"cannot be listened on: {os.strerror(number) if number else error}")

    @classmethod
    def from_os(cls, error: OSError) -> Self | None:
        """The line for what an event loop's create_server raised; None for an OSError that is about something else."""
        place = _PLACE.search(str(error))
        if error.errno not in _ABOUT_ADDRESSES or place is None:
            return None
        return cls.explain(place["path"] or f"{place['host']}:{place['port']}", error)


def probe(address: str) -> None:
    """Raise CannotListenError if "host:port" cannot be listened on now; says nothing of a Unix socket."""
    if address.startswith("unix:"):
        return
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            raise CannotListenError.explain(address, error) from error


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port" ("[::1]:80" too). Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]"), int(port)


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches what listens on "host:port" or "unix:/path"."""
    if address.startswith("unix:"):
        return True
    host = split_address(address)[0]
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
