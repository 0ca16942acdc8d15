from services.cli.inspect_model import lines

FOUND = {
    "model": "digits",
    "version": "2",
    "state": "READY",
    "reason": "",
    "framework": "onnx",
    "digest": "6c1a",
    "endpoints": ["127.0.0.1:8101", "127.0.0.1:8141"],
    "spec": {"trusted": True, "batching": {"slots": 2}},
    "inputs": [{"name": "x", "datatype": "FP32", "shape": (-1, 4)}],
    "outputs": [],
    "notes": ["response_cache: answers are not cached"],
    "instances": [],
}


def test_what_is_known_is_said_in_lines_and_what_is_empty_is_left_out() -> None:
    assert lines(FOUND) == [
        "model      digits",
        "version    2",
        "state      READY",
        "framework  onnx",
        "digest     6c1a",
        "endpoints  127.0.0.1:8101, 127.0.0.1:8141",
        "input      x FP32[-1, 4]",
        "spec       trusted true",
        'spec       batching {"slots":2}',
        "note       response_cache: answers are not cached",
    ]


def test_a_spec_of_defaults_and_no_replica_are_said() -> None:
    assert lines({**FOUND, "spec": {}, "endpoints": [], "notes": []})[-2:] == [
        "input      x FP32[-1, 4]",
        "spec       all as by default",
    ]
