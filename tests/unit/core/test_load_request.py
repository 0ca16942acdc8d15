"""What may come with a load or unload."""

import base64
import json
from typing import Any

import pytest

from services.core.errors import InvalidRequestError
from services.core.load_request import check_unload, parse_load


def test_files_are_bytes_or_base64() -> None:
    request = parse_load(
        "m", {"config": "{}", "file:1/model.onnx": b"\0a", "file:1/data/x.bin": base64.b64encode(b"b").decode()}
    )

    assert request.files == {"1/model.onnx": b"\0a", "1/data/x.bin": b"b"}


@pytest.mark.parametrize(
    "path",
    [
        "model.onnx", "1", "1/", "01/model.onnx", "/1/model.onnx", "1/../../etc/passwd", "../1/model.onnx", "1/./a",
        "1//a", "1/.hidden", "1/a\\..\\b", "1/a\0b", "1/c:/x", "latest/model.onnx", "1/" + "a" * 300,
    ],
)  # fmt: skip
def test_a_file_stays_below_its_version(path: str) -> None:
    with pytest.raises(InvalidRequestError, match="is no place for a file"):
        parse_load("m", {"config": "{}", f"file:{path}": b""})


@pytest.mark.parametrize(
    ("parameters", "fault"),
    [
        ({"conf": "{}"}, "'conf' is unknown"),
        ({"config": {}}, "config is no text"),
        ({"config": "{"}, "config is no JSON"),
        ({"config": "[]"}, "no JSON object"),
        ({"config": '{"instance_group": [{"gpus": null}]}'}, "gpus is no list"),
        ({"config": '{"instance_group": [{"kind": []}]}'}, "one kind of KIND_AUTO"),
        ({"file:1/a": b""}, "needs config too"),
        ({"config": "{}", "file:1/a": "*"}, "neither bytes nor base64"),
        ({"config": "{}", "file:1/a": 1}, "neither bytes nor base64"),
        ({"config": "{}", **{f"file:1/{number}": b"" for number in range(1001)}}, "1001 files, over 1000"),
    ],
)
def test_what_else_is_refused(parameters: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidRequestError, match=fault):
        parse_load("m", parameters)


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        ({"trusted": True, "batching": {"slots": 3}}, {"trusted": True, "batching": {"slots": 3}}),
        ({"name": "m", "max_batch_size": 8}, {"batching": {"max_batch_size": 8}}),
        ({"backend": "onnxruntime"}, {"framework": "onnx"}),
        ({"platform": "tensorflow_savedmodel"}, {"framework": "tensorflow"}),
        ({"version_policy": {"latest": {"num_versions": 2}}}, {"version_policy": {"latest": 2}}),
        ({"version_policy": {"latest": {}}}, {"version_policy": {"latest": 1}}),
        ({"version_policy": {"all": {}}}, {"version_policy": {"all": True}}),
        ({"version_policy": {"specific": {"versions": [1, 3]}}}, {"version_policy": {"specific": ["1", "3"]}}),
        ({"version_policy": {"specific": ["1"]}}, {"version_policy": {"specific": ["1"]}}),
        (
            {"instance_group": [{"count": 2, "kind": "KIND_CPU"}, {"kind": "KIND_CPU"}]},
            {"instances": {"count": 3, "kind": "cpu"}},
        ),
        (
            {"instance_group": [{"kind": "KIND_GPU", "gpus": [0, 1]}]},
            {"instances": {"count": 1, "kind": "gpu", "gpus": [0, 1]}},
        ),
        (
            {
                "dynamic_batching": {
                    "preferred_batch_size": [4],
                    "max_queue_delay_microseconds": 100,
                    "default_queue_policy": {"timeout_action": "DELAY", "max_queue_size": 9},
                }
            },
            {
                "batching": {
                    "preferred_batch_size": [4],
                    "max_queue_delay_microseconds": 100,
                    "timeout_action": "DELAY",
                    "max_queue_size": 9,
                }
            },
        ),
    ],
)
def test_what_triton_calls_otherwise_is_understood(config: dict[str, Any], fields: dict[str, Any]) -> None:
    assert parse_load("m", {"config": json.dumps(config)}).overrides == fields


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({"name": "n"}, "config.name is 'n'"),
        ({"backend": "dali"}, "config.backend 'dali' is unknown"),
        ({"backend": []}, "config.backend"),
        ({"dynamic_batching": {"delay": 1}}, r"config\.dynamic_batching\.delay is not taken"),
        ({"dynamic_batching": {"default_queue_policy": {"x": 1}}}, r"default_queue_policy\.x is not taken"),
        ({"dynamic_batching": 3}, "config.dynamic_batching is no object"),
        ({"version_policy": {"latest": {"versions": 2}}}, r"config\.version_policy\.latest\.versions is not taken"),
        ({"instance_group": [{"kind": "KIND_MODEL"}]}, "one kind of KIND_AUTO"),
        ({"instance_group": [{"kind": "KIND_CPU"}, {"kind": "KIND_GPU"}]}, "one kind of KIND_AUTO"),
        ({"instance_group": {}}, "config.instance_group is no list"),
    ],
)
def test_what_triton_has_and_this_has_not_is_refused_by_name(config: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidRequestError, match=fault):
        parse_load("m", {"config": json.dumps(config)})


def test_an_unload_takes_unload_dependents_and_nothing_else() -> None:
    check_unload({"unload_dependents": True})

    with pytest.raises(InvalidRequestError, match="'force' is unknown"):
        check_unload({"force": True})
    with pytest.raises(InvalidRequestError, match="true or false"):
        check_unload({"unload_dependents": 1})
