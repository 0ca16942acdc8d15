import pytest

from services.core.registry import ConfigStatus, Endpoint, Inventory, InventoryVersion, ServiceRecord, dial_address
from services.core.spec import BadValueError

NO_NAME = " is no name: letters, digits, '.', '_' and '-', at most 128, the first a letter or digit"
ENDPOINT = Endpoint(address="10.0.0.1:8101", digest="sha256:ab", signature_hash="cd", slots=2, max_batch_rows=64)
INVENTORY = Inventory(models={"digits": {"1": InventoryVersion(state="READY", digest="sha256:ab")}})


@pytest.mark.parametrize(
    "value",
    [
        ENDPOINT,
        ServiceRecord(),
        ServiceRecord(address="127.0.0.1:8001", metrics="127.0.0.1:8002", state="ready", pid=7),
        Inventory(),
        INVENTORY,
        ConfigStatus(revision=9, accepted={"routes/digits": 8}, refused={"routes/ranker": "not JSON"}),
    ],
)
def test_what_a_service_writes_another_reads(
    value: Endpoint | ServiceRecord | Inventory | ConfigStatus,
) -> None:
    assert type(value).parse(value.dump()) == value


@pytest.mark.parametrize(
    ("kind", "raw", "message"),
    [
        (
            Endpoint,
            b'{"address": "a:1", "digest": "d", "signature_hash": "s", "slots": 2}',
            "max_batch_rows: Field required",
        ),
        (ServiceRecord, b'{"state": "gone"}', "state: Input should be 'starting', 'ready', 'not_ready' or 'draining'"),
        (Inventory, b'{"models": {"a/b": {}}}', f"models.a/b: 'a/b'{NO_NAME}"),
        (
            Inventory,
            b'{"models": {"a": {"1": {"state": "OK"}}}}',
            "models.a.1.state: Input should be 'UNKNOWN', 'READY', 'UNAVAILABLE', 'LOADING' or 'UNLOADING'",
        ),
    ],
)
def test_a_strange_record_is_refused(
    kind: type[Endpoint | ServiceRecord | Inventory], raw: bytes, message: str
) -> None:
    with pytest.raises(BadValueError) as caught:
        kind.parse(raw)

    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("socket", "host", "expected"),
    [("/run/a.sock", "here", "unix:/run/a.sock"), ("/run/a.sock", "there", "1.2.3.4:5"), ("", "here", "1.2.3.4:5")],
)
def test_a_socket_is_dialled_on_its_own_host_only(socket: str, host: str, expected: str) -> None:
    record = ServiceRecord(address="1.2.3.4:5", local_socket=socket, host=host)

    assert dial_address(record, "here") == expected
