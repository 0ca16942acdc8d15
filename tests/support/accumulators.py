"""A model with state whose answers can be checked: every answer is the sum of what its sequence sent so far.

python -m tests.support.accumulators http|grpc ADDRESS MODEL    # tritonclient sends interleaved sequences; sums as JSON
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

_OPSET, _IR_VERSION = 17, 9
CONTROLS = (
    {"name": "start", "kind": "START"},
    {"name": "ready", "kind": "READY"},
    {"name": "end", "kind": "END"},
    {"name": "id", "kind": "CORRID"},
)
STATE = ({"input_name": "sum", "output_name": "sum_next"},)
SEQUENCES = [*range(1, 9), "ana", "max"]
STEPS = 6


def spec(rows: int = 8, idle_us: int = 60_000_000, **sequences: Any) -> dict[str, Any]:
    """models/MODEL for it."""
    batching = {"max_sequence_idle_microseconds": idle_us, "control_input": CONTROLS, "state": STATE, **sequences}
    sized = {"max_batch_size": rows, "sequence_batching": batching}
    return {"batching": sized, "default_version": "1", "default_deadline_ms": 20_000}


def write(repository: Path, model: str, *, text_ids: bool = False) -> None:
    """MODEL/1/model.onnx: x FP32 [n, 1] -> y FP32 [n, 1], the sum so far, and told INT32 [n, 3]: start, ready, end."""
    nodes = [
        helper.make_node("Add", ["x", "sum"], ["y"]),
        helper.make_node("Identity", ["y"], ["sum_next"]),
        helper.make_node("Identity", ["id"], ["who"]),
        helper.make_node("Cast", ["start"], ["s"], to=TensorProto.INT32),
        helper.make_node("Cast", ["end"], ["e"], to=TensorProto.INT32),
        helper.make_node("Concat", ["s", "ready", "e"], ["told"], axis=1),
    ]
    ids = TensorProto.STRING if text_ids else TensorProto.INT64
    inputs = {
        "x": TensorProto.FLOAT, "sum": TensorProto.FLOAT, "start": TensorProto.BOOL, "ready": TensorProto.INT32,
        "end": TensorProto.FLOAT, "id": ids,
    }  # fmt: skip
    outputs = {"y": TensorProto.FLOAT, "sum_next": TensorProto.FLOAT, "who": ids}
    graph = helper.make_graph(
        nodes,
        "accumulator",
        [helper.make_tensor_value_info(name, kind, ["n", 1]) for name, kind in inputs.items()],
        [
            *(helper.make_tensor_value_info(name, kind, ["n", 1]) for name, kind in outputs.items()),
            helper.make_tensor_value_info("told", TensorProto.INT32, ["n", 3]),
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
    onnx.checker.check_model(made, full_check=True)
    folder = repository / model / "1"
    folder.mkdir(parents=True)
    onnx.save(made, folder / "model.onnx")


def interleaved(module: Any, address: str, model: str, options: Mapping[str, bool]) -> list[list[float]]:
    """The sums of SEQUENCES, each of STEPS requests, one of each in turn."""
    client = module.InferenceServerClient(address)
    sums: list[list[float]] = [[] for _ in SEQUENCES]
    for step in range(STEPS):
        for place, name in enumerate(SEQUENCES):
            given = module.InferInput("x", [1, 1], "FP32")
            given.set_data_from_numpy(np.array([[10 * place + step]], np.float32), **options)
            answer = client.infer(
                model,
                [given],
                outputs=[module.InferRequestedOutput("y", **options)],
                sequence_id=name,
                sequence_start=step == 0,
                sequence_end=step == STEPS - 1,
            )
            sums[place].append(float(answer.as_numpy("y")[0, 0]))
    return sums


if __name__ == "__main__":
    protocol, address, model = sys.argv[1:]
    if protocol == "http":
        import tritonclient.http as triton
    else:
        import tritonclient.grpc as triton
    found = interleaved(triton, address, model, {"binary_data": False} if protocol == "http" else {})
    print(json.dumps(found))  # noqa: T201 - the answer
