"""When a worker that loads stands back, and for how far it may."""

import resource

import pytest

from services.runtime.priority import is_spared, may_raise
from turnout.v1 import runtime_pb2 as pb

ALL, DEFAULT_OF_CONTAINERS, NONE = "000001ffffffffff", "00000000a80425fb", "0000000000000000"


@pytest.mark.parametrize(
    ("capabilities", "limit", "own", "same_user", "expected"),
    [
        (ALL, 0, 0, False, True),
        (DEFAULT_OF_CONTAINERS, 0, 0, True, False),
        (NONE, 0, 0, True, False),
        (NONE, 20, 0, True, True),
        (NONE, 19, 0, True, False),
        (NONE, 15, 5, True, True),  # a runtime that is itself at 5 raises to 5
        (NONE, 20, 0, False, False),
        (NONE, resource.RLIM_INFINITY, 0, True, True),
    ],
)
def test_only_who_can_raise_a_worker_again_lowers_it(
    capabilities: str, limit: int, own: int, *, same_user: bool, expected: bool
) -> None:
    status = f"Name:\tpython\nCapPrm:\t{ALL}\nCapEff:\t{capabilities}\nSeccomp:\t0\n"

    assert may_raise(status, limit, own, same_user=same_user) is expected


def instance(identity: str, model: str, version: str, state: pb.InstanceState) -> pb.Instance:
    return pb.Instance(id=identity, model=model, version=version, state=state)


@pytest.mark.parametrize(
    ("other", "first", "restart"),
    [
        (instance("w2", "m", "2", pb.READY), True, True),
        (instance("w2", "m", "1", pb.READY), True, False),  # callers of version 2 wait for its restart
        (instance("w2", "n", "2", pb.READY), False, False),
        (instance("w2", "m", "2", pb.LOADING), False, False),
        (instance("w2", "m", "2", pb.DRAINING), False, False),
        (instance("w1", "m", "2", pb.READY), False, False),  # itself
    ],
)
def test_a_worker_stands_back_only_where_callers_have_another(
    other: pb.Instance, *, first: bool, restart: bool
) -> None:
    loading = instance("w1", "m", "2", pb.LOADING)

    assert is_spared(loading, [loading, other], is_restart=False) is first
    assert is_spared(loading, [loading, other], is_restart=True) is restart
