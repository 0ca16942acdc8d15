"""Overrides of a model's fields for one version."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from services.core.model_spec import ModelSpec

batching = st.fixed_dictionaries(
    {},
    optional={
        "max_batch_size": st.integers(0, 64),
        "max_queue_size": st.integers(64, 4096),
        "slots": st.integers(1, 4),
        "allow_timeout_override": st.booleans(),
    },
)
limits = st.fixed_dictionaries(
    {},
    optional={
        "max_request_rows": st.none() | st.integers(1, 100),
        "max_execution_ms": st.integers(1, 1000),
        "max_restarts": st.integers(0, 3),
    },
)
policies = st.sampled_from([{"latest": 2}, {"all": True}, {"specific": ["1", "3"]}])
use = st.fixed_dictionaries({"view": st.just("v"), "entity": st.sampled_from(["user", "header:x-user"])})
models = st.fixed_dictionaries(
    {},
    optional={
        "repository": st.none() | st.just("file:///srv"),
        "framework": st.none() | st.sampled_from(["onnx", "sklearn", "xgboost", "lightgbm", "python"]),
        "instances": st.fixed_dictionaries({}, optional={"count": st.integers(1, 4), "kind": st.just("cpu")}),
        "idempotent": st.booleans(),
        "placement": st.fixed_dictionaries({"pool": st.sampled_from(["default", "gpu"])}),
        "version_policy": policies,
        "batching": batching,
        "limits": limits,
        "features": st.lists(use.map(lambda value: {**value, "input": "x"}), max_size=1),
    },
)


def parse(value: dict[str, Any]) -> ModelSpec:
    return ModelSpec.parse(json.dumps(value).encode())


@given(models, models)
def test_an_override_is_as_if_it_had_been_written_into_the_model(
    base: dict[str, Any], override: dict[str, Any]
) -> None:
    merged = dict(base)
    for name, value in override.items():
        nested = name in {"placement", "batching", "limits", "instances"}
        merged[name] = {**base.get(name, {}), **value} if nested else value

    overridden = parse({**base, "versions": {"2": override}}).for_version("2")
    assert overridden.model_copy(update={"versions": {}}) == parse(merged)


@given(models, models)
def test_an_override_touches_no_other_version(base: dict[str, Any], override: dict[str, Any]) -> None:
    spec = parse({**base, "versions": {"2": override}})

    assert spec.for_version("3") is spec
    assert spec.model_copy(update={"versions": {}}) == parse(base)


@given(models, models)
def test_a_dump_parses_back_with_its_overrides(base: dict[str, Any], override: dict[str, Any]) -> None:
    spec = parse({**base, "versions": {"2": override}})

    assert ModelSpec.parse(spec.dump()) == spec
    assert ModelSpec.parse(spec.dump()).for_version("2") == spec.for_version("2")
