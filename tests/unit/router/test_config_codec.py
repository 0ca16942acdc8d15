"""A version's configuration as Triton's clients read it."""

from dataclasses import replace

from services.core import triton_config
from services.core.batching_spec import Batching
from services.core.model_spec import ModelSpec
from services.core.signature import Signature, TensorSpec
from services.router.config_codec import model_config
from services.router.plain import plain

X = TensorSpec("x", "FP32", (-1, 3, -1))
SIGNATURE = Signature((X,), (TensorSpec("y", "BYTES", (-1,)),), batches=True, platform="onnxruntime_onnx")


def spec(**fields: object) -> ModelSpec:
    return ModelSpec.model_validate(fields)


def test_dimensions_are_those_of_a_row_where_rows_are_batched() -> None:
    config = plain(model_config("m", spec(batching={"max_batch_size": 8}), SIGNATURE))

    assert (config["max_batch_size"], config["platform"], config["backend"]) == (8, "onnxruntime_onnx", "onnxruntime")
    (x,), (y,) = config["input"], config["output"]
    assert (x["name"], x["data_type"], x["dims"]) == ("x", "TYPE_FP32", [3, -1])
    assert (y["data_type"], y["dims"], y["reshape"]) == ("TYPE_STRING", [1], {"shape": []})
    assert config["instance_group"][0]["count"] == 1
    assert config["version_policy"] == {"latest": {"num_versions": 1}}
    assert "sequence_batching" not in config


def test_without_batches_they_are_whole() -> None:
    whole = Signature((X,), (X,), batches=False, platform="python")
    for found in (
        plain(model_config("m", spec(), whole)),
        plain(model_config("m", spec(batching={"max_batch_size": 0}), SIGNATURE)),
    ):
        assert (found["max_batch_size"], found["input"][0]["dims"]) == (0, [-1, 3, -1])
        assert "dynamic_batching" not in found
        assert "model_transaction_policy" not in found
    streamed = plain(model_config("m", spec(), replace(whole, decoupled=True)))
    assert streamed["model_transaction_policy"] == {"decoupled": True}


def test_what_a_level_leaves_open_is_as_for_all() -> None:
    batching = {
        "preferred_batch_size": [4, 8],
        "max_queue_delay_microseconds": 100,
        "priority_levels": 2,
        "default_priority_level": 2,
        "default_timeout_microseconds": 5000,
        "priority_queue_policy": {1: {"timeout_action": "DELAY", "max_queue_size": 7}},
    }
    dynamic = plain(model_config("m", spec(batching=batching), SIGNATURE))["dynamic_batching"]

    assert dynamic["preferred_batch_size"] == [4, 8]
    assert dynamic["max_queue_delay_microseconds"] == 100
    assert dynamic["default_queue_policy"]["timeout_action"] == "REJECT"
    assert dynamic["priority_queue_policy"]["1"] == {
        "timeout_action": "DELAY",
        "default_timeout_microseconds": 5000,
        "allow_timeout_override": True,
        "max_queue_size": 7,
    }


def test_sequences_have_their_controls_and_strategy() -> None:
    sequences = {
        "control_input": [{"name": "start", "kind": "START"}, {"name": "id", "kind": "CORRID"}],
        "state": [{"input_name": "a", "output_name": "b"}],
        "oldest": {"max_candidate_sequences": 9, "preferred_batch_size": [4]},
    }
    config = plain(model_config("m", spec(batching={"sequence_batching": sequences}), SIGNATURE))
    found = config["sequence_batching"]

    assert "dynamic_batching" not in config
    assert [control["control"][0]["kind"] for control in found["control_input"]] == [
        "CONTROL_SEQUENCE_START",
        "CONTROL_SEQUENCE_CORRID",
    ]
    assert found["control_input"][0]["control"][0]["fp32_false_true"] == [0, 1]
    assert (found["oldest"]["max_candidate_sequences"], "direct" in found) == (9, False)
    plainly = plain(model_config("m", spec(batching={"sequence_batching": {}}), SIGNATURE))
    assert plainly["sequence_batching"]["direct"] == {"max_queue_delay_microseconds": 0, "minimum_slot_utilization": 0}


def test_versions_and_instances_are_as_the_spec_has_them() -> None:
    policy = {"specific": ["3", "12"]}
    config = model_config(
        "m", spec(version_policy=policy, instances={"count": 3, "kind": "gpu", "gpus": [0, 1]}), SIGNATURE
    )

    assert list(config.version_policy.specific.versions) == [3, 12]
    group = plain(config)["instance_group"][0]
    assert (group["count"], group["kind"], group["gpus"]) == (3, "KIND_GPU", [0, 1])
    assert plain(model_config("m", spec(version_policy={"all": True}), SIGNATURE))["version_policy"] == {"all": {}}


def test_it_reads_back_as_the_batching_it_was_made_of() -> None:
    batching = Batching(max_batch_size=16, preferred_batch_size=(4,), max_queue_delay_microseconds=50)
    config = model_config("m", ModelSpec(batching=batching), SIGNATURE)
    read = triton_config.read("m", str(config))

    assert Batching.model_validate(read.fields["batching"]) == batching
