"""What this runtime says of itself in etcd: its inventory, and which keys it accepted or refused."""

from services.chassis.etcd import Registration
from services.core import keys
from services.core.registry import ConfigStatus, Inventory
from services.runtime.desired import Desired

_SERVICE = "runtime"


class Status:
    """Keys below status/runtime/INSTANCE/, under the process's lease."""

    def __init__(self, registration: Registration, instance: str) -> None:
        self._registration = registration
        self._instance = instance

    def publish(self, inventory: Inventory, desired: Desired) -> None:
        """Write what changed."""
        self._put("inventory", inventory.dump())
        config = ConfigStatus(revision=desired.revision, accepted=desired.accepted, refused=desired.refused)
        self._put("config", config.dump())

    def _put(self, what: str, value: bytes) -> None:
        self._registration.put(keys.status(_SERVICE, self._instance, what), value)
