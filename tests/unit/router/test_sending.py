"""A canary whose last replica goes in the very turn in which it was chosen."""

import json
from typing import Any

import pytest

from services.core.signature import Given
from services.router.choice import CANARY, EXPLICIT, STABLE
from services.router.desired import Desired
from services.router.flight import Flight
from services.router.inference import Inference, Step
from services.router.sending import turn_to_stable
from services.router.table import Table
from tests.support.puppets import X, Y, signature
from turnout.v1 import link_pb2

GOOD = Given("x", "FP32", [2, 2], bytes(16))


def flight(*, arm: str = CANARY, given: Given = GOOD, spec: dict[str, Any] | None = None, stable: Any = X) -> Flight:
    """Chosen for canary 2 of a model, whose stable version 1 takes `stable`."""
    desired = Desired()
    desired.apply(
        [
            ("models/m", json.dumps(spec or {}).encode(), 1),
            ("routes/m", json.dumps({"stable": "1", "canary": {"2": 100}}).encode(), 2),
        ]
    )
    table = Table(lambda _: None)
    served = {
        ("m", version): link_pb2.Served(model="m", version=version, digest="d", signature=signature((takes,), (Y,)))
        for version, takes in (("1", stable), ("2", X))
        if takes is not None
    }
    table.rebuild(desired, served)
    made = Flight(None, None, 0, {}, 0)  # type: ignore[arg-type]
    made.entry = table.entry("m")
    made.target, made.arm = made.entry.targets["2"], arm
    made.inference = Inference("m", "", "", {}, [given], (), 16)
    return made


def test_stable_takes_it_and_the_answer_says_so() -> None:
    one = flight()

    assert turn_to_stable(one)
    assert (one.target.version, one.arm, one.rows) == ("1", STABLE, 2)


def test_who_asked_for_the_version_gets_no_other() -> None:
    one = flight(arm=EXPLICIT)

    assert not turn_to_stable(one)
    assert (one.target.version, one.arm) == ("2", EXPLICIT)


def test_a_sequence_stays_where_it_is() -> None:
    one = flight()
    one.step = Step(7, start=True, end=False)

    assert not turn_to_stable(one)


@pytest.mark.parametrize("stable", [("z", "FP32", (-1, 2)), None], ids=["takes another input", "is not ready"])
def test_where_stable_cannot_it_is_not_asked(stable: Any) -> None:
    one = flight(stable=stable)

    assert not turn_to_stable(one)
    assert (one.target.version, one.arm) == ("2", CANARY)


@pytest.mark.parametrize("version", ["1", "2"])
def test_where_features_fill_inputs_it_is_not_asked(version: str) -> None:
    features = [{"view": "users", "entity": "user", "input": "ages"}]

    assert not turn_to_stable(flight(spec={"versions": {version: {"features": features}}}))
