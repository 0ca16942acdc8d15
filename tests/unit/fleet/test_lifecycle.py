"""What etcd says of a fleet."""

from services.core.registry import Inventory, ServiceRecord
from services.fleet.lifecycle import pods_of


def test_a_record_of_another_release_is_one_of_a_pod_that_runs() -> None:
    draining = ServiceRecord(address="", host="", state="draining", pid=1)
    inventory = Inventory(pool="default")
    found = pods_of(
        {
            "services/runtime/a": b'{"of": "another release"}',
            "status/runtime/a/inventory": inventory.dump(),
            "services/runtime/b": b"{",
            "services/runtime/c": draining.dump(),
            "status/runtime/c/inventory": inventory.dump(),
        }
    )

    assert found == {"a": inventory, "b": None}
