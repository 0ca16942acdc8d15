"""tritonclient's view of ModelStreamInfer, as JSON: python -m tests.support.triton_streamer ADDRESS.

A program of its own, because two definitions of the protobuf package `inference` cannot live in one process.
"""

import json
import queue
import sys
from typing import Any

import numpy as np
import tritonclient.grpc as triton

TIMEOUT_S = 90.0


def given(**values: int) -> list[Any]:
    inputs = []
    for name, value in values.items():
        tensor = triton.InferInput(name, [1], "INT32")
        tensor.set_data_from_numpy(np.array([value], np.int32))
        inputs.append(tensor)
    return inputs


def main(address: str) -> dict[str, Any]:
    heard: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client = triton.InferenceServerClient(address)
    client.start_stream(lambda result, error: heard.put((result, error)), stream_timeout=TIMEOUT_S)

    def take(output: str, count: int) -> list[list[Any]]:
        answers: list[list[Any]] = []
        for _ in range(count):
            result, error = heard.get(timeout=TIMEOUT_S)
            if error is not None:
                raise error
            response = result.get_response()
            values = result.as_numpy(output)
            is_final = response.parameters["triton_final_response"].bool_param
            answers.append([response.id, None if values is None else int(values[0]), is_final])
        return answers

    client.async_stream_infer("count", given(n=3, size=0), request_id="a", enable_empty_final_response=True)
    answers = take("i", 4)
    client.async_stream_infer("twice", given(n=4), request_id="b")
    ordinary = take("y", 1)
    client.async_stream_infer("nobody", given(n=4), request_id="c")
    _, error = heard.get(timeout=TIMEOUT_S)
    client.async_stream_infer("count", given(n=1, size=0), request_id="d")
    after = take("i", 1)
    client.stop_stream()
    return {"answers": answers, "ordinary": ordinary, "error": str(error), "after": after}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))  # noqa: T201 - the answer
