"""etcd: a thin client, a live mirror of keys, the registration of a process, and a server to start.

A service asks its Mirror, which lists, watches and keeps a snapshot; it tells others through its Registration, whose
keys hang on one lease. Both use one EtcdClient.
"""

from services.chassis.etcd.client import Entry, EtcdClient, Listing, ServerStatus
from services.chassis.etcd.connection import TlsFiles, split_endpoints
from services.chassis.etcd.errors import CompactedError, EtcdError, EtcdUnavailableError, LeaseLostError
from services.chassis.etcd.mirror import Mirror, MirrorTiming
from services.chassis.etcd.registration import Registration
from services.chassis.etcd.server import EtcdProcess, EtcdStartError, find_etcd
from services.chassis.etcd.snapshot import Snapshot, Stored
from services.chassis.etcd.watch import Change, WatchTiming

__all__ = [
    "Change",
    "CompactedError",
    "Entry",
    "EtcdClient",
    "EtcdError",
    "EtcdProcess",
    "EtcdStartError",
    "EtcdUnavailableError",
    "LeaseLostError",
    "Listing",
    "Mirror",
    "MirrorTiming",
    "Registration",
    "ServerStatus",
    "Snapshot",
    "Stored",
    "TlsFiles",
    "WatchTiming",
    "find_etcd",
    "split_endpoints",
]
