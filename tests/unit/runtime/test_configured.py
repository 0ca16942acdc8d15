"""config.pbtxt beside a model's versions."""

from pathlib import Path

import pytest

from services.core.model_spec import ModelSpec
from services.runtime.configured import Configured
from services.runtime.local_repository import LocalFolder
from services.runtime.source import Artifact, Look
from turnout.v1 import runtime_pb2 as pb

VERSIONS = {"1": Artifact(LocalFolder(Path("/srv/m/1"), None), ())}


@pytest.fixture
def configured() -> Configured:
    return Configured()


def test_it_says_what_the_spec_leaves_open(configured: Configured) -> None:
    config = "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 500 } instance_group { count: 2 }"
    spec = ModelSpec.parse(b'{"batching": {"max_batch_size": 64}}')
    configured.take("m", Look(VERSIONS, config=config), spec)
    filled = configured.filled({"m": spec, "other": ModelSpec()})
    instance = pb.Instance(model="m")
    configured.tell([instance])

    assert (filled["m"].batching.max_batch_size, filled["m"].batching.max_queue_delay_microseconds) == (64, 500)
    assert filled["m"].instances.count == 2
    assert filled["other"] == ModelSpec()
    assert instance.batching == b'{"max_batch_size": 8, "max_queue_delay_microseconds": 500}'
    assert configured.filled({"m": spec})["m"] is filled["m"]


def test_when_it_goes_so_does_what_it_said(configured: Configured) -> None:
    spec = ModelSpec()
    configured.take("m", Look(VERSIONS, config="max_batch_size: 8"), spec)
    before = configured.filled({"m": spec})["m"]
    configured.take("m", Look(VERSIONS), spec)
    instance = pb.Instance(model="m", batching=b"{}")
    configured.tell([instance])

    assert before.batching.max_batch_size == 8
    assert configured.filled({"m": spec})["m"] is spec
    assert instance.batching == b""


def test_what_is_not_done_is_noted(configured: Configured) -> None:
    configured.take("m", Look(VERSIONS, config="response_cache { enable: true }"), None)

    assert configured.notes("m") == ("response_cache: answers are not cached",)
    assert configured.notes("other") == ()


def test_what_cannot_be_served_makes_every_version_unfit(configured: Configured) -> None:
    look = Look(VERSIONS, config='platform: "ensemble"')
    unfit = configured.take("m", look, ModelSpec())
    overruled = configured.take("m", look, ModelSpec(framework="python"))

    assert unfit["1"].fault.startswith("config.pbtxt: ensembles are not run")
    assert overruled == VERSIONS
    assert configured.notes("m")[0].startswith("config.pbtxt: ensembles are not run")


def test_a_spec_that_it_does_not_fit_stays_as_it_is(configured: Configured) -> None:
    spec = ModelSpec.parse(b'{"batching": {"preferred_batch_size": [16]}}')
    configured.take("m", Look(VERSIONS, config="max_batch_size: 8"), spec)

    assert configured.filled({"m": spec})["m"] is spec


def test_its_name_is_the_folders(configured: Configured) -> None:
    look = Look(VERSIONS, config='name: "churn_v2" max_batch_size: 8')

    assert configured.take("churn", look, ModelSpec(folder="churn_v2")) == VERSIONS
    assert "its name is 'churn_v2'" in configured.take("other", look, ModelSpec())["1"].fault


def test_one_that_would_take_seconds_to_read_is_refused(configured: Configured) -> None:
    look = Look(VERSIONS, config="max_batch_size: 8 # " + "long" * (32 << 10))

    assert "characters, over 131072" in configured.take("m", look, ModelSpec())["1"].fault
