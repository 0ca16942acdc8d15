from collections import Counter

from services.core import rendezvous

NODES = ["pod-0-a1", "pod-1-b2", "pod-2-c3", "pod-3-d4"]
KEYS = [f"digits/1/{number}" for number in range(4000)]


def test_no_nodes_hold_nothing() -> None:
    assert rendezvous.choose([], "key") is None


def test_everyone_agrees_whatever_the_order() -> None:
    assert [rendezvous.choose(NODES, key) for key in KEYS] == [rendezvous.choose(NODES[::-1], key) for key in KEYS]


def test_the_choice_stays_the_same_from_release_to_release() -> None:
    assert [rendezvous.choose(NODES, key) for key in ("a", "b", "c", "é")] == [
        "pod-0-a1",
        "pod-1-b2",
        "pod-2-c3",
        "pod-3-d4",
    ]


def test_nodes_hold_fair_shares() -> None:
    shares = Counter(rendezvous.choose(NODES, key) for key in KEYS)

    assert set(shares) == set(NODES)
    assert all(abs(share / len(KEYS) - 0.25) < 0.03 for share in shares.values())


def test_only_a_lost_nodes_keys_move() -> None:
    moved = [key for key in KEYS if rendezvous.choose(NODES, key) not in {rendezvous.choose(NODES[1:], key), NODES[0]}]

    assert moved == []


def test_a_node_and_a_key_do_not_run_into_each_other() -> None:
    assert rendezvous.weight("ab", "c") != rendezvous.weight("a", "bc")
