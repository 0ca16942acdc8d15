"""Triton's config.pbtxt in our words."""

import json
from typing import Any

import pytest

from services.core.model_spec import ModelSpec
from services.core.spec import BadValueError
from services.core.triton_config import read

FULL = """
name: "m"
platform: "onnxruntime_onnx"
max_batch_size: 16
input [
  { name: "x" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, -1 ] },
  { name: "mask" data_type: TYPE_BOOL dims: 4 optional: true }
]
output { name: "y" data_type: TYPE_FP32 dims: [ 10 ] label_filename: "labels.txt" reshape { shape: [ 2, 5 ] } }
version_policy: { specific: { versions: [ 1, 3 ] } }
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
  max_queue_delay_microseconds: 100
  preserve_ordering: true
  priority_levels: 2
  default_priority_level: 2
  default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5000 max_queue_size: 128 }
  priority_queue_policy { key: 1 value { allow_timeout_override: true max_queue_size: 64 } }
}
instance_group [ { count: 2 kind: KIND_CPU }, { count: 1 kind: KIND_CPU host_policy: "numa" } ]
parameters { key: "intra_op_thread_count" value { string_value: "4" } }
parameters { key: "execution_mode" value { string_value: "0" } }
optimization { graph { level: 1 } execution_accelerators { gpu_execution_accelerator: [ { name: "tensorrt" } ] } }
model_warmup { name: "one" batch_size: 1 inputs { key: "x" value { data_type: TYPE_FP32 dims: 3 random_data: true } } }
model_warmup { name: "all" batch_size: 16 }
response_cache { enable: true }
"""


def spec_of(fields: dict[str, Any]) -> ModelSpec:
    return ModelSpec.parse(json.dumps(fields).encode())


def test_what_it_asks_for_is_a_spec() -> None:
    fields = read("m", FULL).fields

    spec_of(fields)
    assert fields == {
        "framework": "onnx",
        "batching": {
            "max_batch_size": 16,
            "preferred_batch_size": [4, 8],
            "max_queue_delay_microseconds": 100,
            "preserve_ordering": True,
            "priority_levels": 2,
            "default_priority_level": 2,
            "timeout_action": "DELAY",
            "allow_timeout_override": False,
            "default_timeout_microseconds": 5000,
            "max_queue_size": 128,
            "priority_queue_policy": {
                "1": {"timeout_action": "REJECT", "allow_timeout_override": True, "max_queue_size": 64}
            },
        },
        "version_policy": {"specific": ["1", "3"]},
        "instances": {"count": 3, "kind": "cpu", "threads": 4},
        "warm_up": {"sizes": [1, 16]},
    }


def test_what_is_not_done_is_said_by_name() -> None:
    said = " | ".join(read("m", FULL).notes)

    for name in ("response_cache", "mask.optional", "y.label_filename", "y.reshape", "instance_group.host_policy",
                 "parameters.execution_mode", "optimization.execution_accelerators", "optimization.graph",
                 "model_warmup", "max_queue_size counts rows"):  # fmt: skip
        assert name in said
    assert "intra_op_thread_count" not in said


def test_torch_is_told_its_inputs_in_the_order_of_their_numbers() -> None:
    imported = read(
        "m",
        """
        backend: "pytorch" max_batch_size: 8
        input [ { name: "INPUT__1" data_type: TYPE_INT64 dims: 2 },
                { name: "INPUT__0" data_type: TYPE_STRING dims: 1 reshape { shape: [] } } ]
        output { name: "OUTPUT__0" data_type: TYPE_FP16 dims: [ -1, 4 ] }
        """,
    )

    assert list(imported.fields["signature"]["inputs"].items()) == [
        ("INPUT__0", {"datatype": "BYTES", "shape": [-1]}),
        ("INPUT__1", {"datatype": "INT64", "shape": [-1, 2]}),
    ]
    assert imported.fields["signature"]["outputs"] == {"OUTPUT__0": {"datatype": "FP16", "shape": [-1, -1, 4]}}


def test_sequences_keep_their_controls_and_states() -> None:
    fields = read(
        "m",
        """
        max_batch_size: 8
        sequence_batching {
          max_sequence_idle_microseconds: 5000000
          control_input [
            { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] },
            { name: "ID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ]
          oldest { max_candidate_sequences: 4 preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 10 }
          state [ { input_name: "h" output_name: "hn" data_type: TYPE_FP32 dims: [ 4 ]
                    initial_state { zero_data: true data_type: TYPE_FP32 dims: [ 4 ] name: "zero" } } ]
        }
        """,
    ).fields

    spec_of(fields)
    assert fields["batching"]["sequence_batching"] == {
        "control_input": [
            {"name": "START", "kind": "START", "false_true": [0.0, 1.0]},
            {"name": "ID", "kind": "CORRID"},
        ],
        "max_sequence_idle_microseconds": 5000000,
        "state": [{"input_name": "h", "output_name": "hn"}],
        "oldest": {"max_candidate_sequences": 4, "preferred_batch_size": [2], "max_queue_delay_microseconds": 10},
    }


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("[ { count: 2 kind: KIND_GPU gpus: [ 0, 1 ] } ]", {"count": 4, "kind": "gpu", "gpus": [0, 1]}),
        ("[ { kind: KIND_GPU } ]", {"count": 1, "kind": "gpu"}),
        ("[ { count: 3 } ]", {"count": 3}),
    ],
)
def test_instances_of_all_groups_and_gpus_are_added(group: str, expected: dict[str, Any]) -> None:
    assert read("m", f"instance_group {group}").fields["instances"] == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("latest { num_versions: 2 }", {"latest": 2}),
        ("latest { }", {"latest": 1}),
        ("all { }", {"all": True}),
        ("specific { versions: 4 }", {"specific": ["4"]}),
    ],
)
def test_version_policies_are_the_same(policy: str, expected: dict[str, Any]) -> None:
    assert read("m", f"version_policy {{ {policy} }}").fields["version_policy"] == expected


def test_a_batch_size_that_is_not_given_is_found_out_and_none_is_none() -> None:
    assert read("m", 'backend: "onnxruntime"').fields == {"framework": "onnx"}
    assert read("m", "max_batch_size: 0").fields == {"batching": {"max_batch_size": 0}}


def test_a_decoupled_model_is_one_here_too() -> None:
    assert read("m", "model_transaction_policy { decoupled: true }").fields["decoupled"] is True


def test_a_large_batch_has_room_in_the_queue() -> None:
    spec_of(read("m", "max_batch_size: 10000").fields)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('name: "other"', "its name is 'other', but the model is 'm'"),
        ('platform: "ensemble" ensemble_scheduling { step [ { model_name: "a" model_version: -1 } ] }', "ensembles"),
        ('backend: "python"', "class TritonPythonModel"),
        ('backend: "tensorrtllm"', "backend 'tensorrtllm' is not run: fil, onnxruntime"),
        ('platform: "tensorflow_graphdef"', "SavedModel"),
        ('backend: "pytorch" model_transaction_policy { decoupled: true }', "decoupled is of models in Python"),
        ("batch_input { kind: BATCH_ELEMENT_COUNT }", "pad_to"),
        ("sequence_batching { iterative_sequence: true }", "iterative_sequence"),
        ('sequence_batching { state { input_name: "h" initial_state { data_file: "h0" } } }', "begins with a file"),
        ("max_batch_size: [", "no text of a protobuf message: 1:17"),
        ("unknown {" * 5000 + "}" * 5000, "too many messages in each other"),
        ('backend: "pytorch" input { name: "x" data_type: 99 dims: 1 }', "means nothing: Enum DataType has no name"),
        ('sequence_batching { control_input { name: "c" control { kind: 77 } } }', "means nothing: 77"),
        ("dynamic_batching { default_queue_policy { timeout_action: 9 } }", "means nothing: Enum TimeoutAction"),
        (f'parameters {{ key: "intra_op_thread_count" value {{ string_value: "{"9" * 5000}" }} }}', "means nothing"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(BadValueError) as refused:
        read("m", text)

    assert reason in str(refused.value)


def test_an_unknown_field_is_said_with_its_place() -> None:
    (note,) = read("m", "max_batch_size: 0\nmax_bach_size: 4").notes

    assert note.startswith("2:1")
    assert "max_bach_size" in note
