from hypothesis import given
from hypothesis import strategies as st

from services.chassis.etcd.mirror import diff
from services.chassis.etcd.snapshot import Stored
from services.chassis.etcd.watch import Change

ENTRIES = st.dictionaries(
    st.sampled_from("abcd"), st.builds(Stored, st.sampled_from([b"1", b"2"]), st.integers(1, 9)), max_size=4
)


@given(old=ENTRIES, new=ENTRIES)
def test_applying_the_difference_to_the_old_gives_the_new(old: dict[str, Stored], new: dict[str, Stored]) -> None:
    entries = dict(old)
    for key, value, revision in diff(old, new, 10):
        if value is None:
            del entries[key]
        else:
            entries[key] = Stored(value, revision)

    assert new == entries


@given(entries=ENTRIES)
def test_equal_entries_differ_in_nothing(entries: dict[str, Stored]) -> None:
    assert diff(entries, dict(entries), 10) == []


def test_deletes_come_first_and_writes_in_their_order() -> None:
    old = {"gone": Stored(b"1", 1), "same": Stored(b"1", 2)}
    new = {"late": Stored(b"1", 8), "same": Stored(b"1", 2), "early": Stored(b"1", 5)}

    assert diff(old, new, 9) == [Change("gone", None, 9), Change("early", b"1", 5), Change("late", b"1", 8)]


def test_the_same_value_written_again_is_a_change() -> None:
    assert diff({"a": Stored(b"1", 1)}, {"a": Stored(b"1", 2)}, 2) == [Change("a", b"1", 2)]
