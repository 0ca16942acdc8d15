import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.etcd import EtcdClient
from services.chassis.etcd.client import range_end


@given(prefix=st.binary(max_size=4), key=st.binary(max_size=6))
def test_a_range_holds_exactly_the_keys_with_the_prefix(prefix: bytes, key: bytes) -> None:
    end = range_end(prefix)

    assert key.startswith(prefix) == (prefix <= key and (end == b"\0" or key < end))


@pytest.mark.parametrize(
    ("prefix", "end"), [(b"/turnout/", b"/turnout0"), (b"a\xff\xff", b"b"), (b"\xff", b"\0"), (b"", b"\0")]
)
def test_range_end_is_the_next_key_after_the_prefix(prefix: bytes, end: bytes) -> None:
    assert range_end(prefix) == end


def test_a_client_without_endpoints_is_refused() -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        EtcdClient([""])
