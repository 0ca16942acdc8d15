"""A real network with a state, held by a worker for each sequence of each link."""

from typing import Any

import numpy as np

from services.core import arrays
from tests.support import accumulators
from tests.support.runtime_pod import FAILED, Batcher, Pod, output
from turnout.v1.link_pb2 import Reply
from turnout.v1.tensor_pb2 import Tensor


def row(number: int, *, start: bool = False, end: bool = False) -> int:
    return number << 2 | start << 1 | end


async def run(batcher: Batcher, rows: list[int], *values: float, **fields: Any) -> Reply:
    """A batch with a row for each value."""
    count = len(values)
    given = {
        "start": np.zeros((count, 1), bool),
        "ready": np.ones((count, 1), np.int32),
        "end": np.zeros((count, 1), np.float32),
        "id": np.arange(count, dtype=np.int64).reshape(count, 1),
    }
    x = np.array(values, np.float32).reshape(count, 1)
    inputs = []
    for name, array in {"x": x, **given}.items():
        datatype, data = arrays.encode(array)
        inputs.append(Tensor(name=name, datatype=datatype, shape=array.shape, data=data))
    return await (await batcher.send_array(x, inputs=inputs, sequence_rows=rows, **fields))


async def test_states_stay_with_their_sequences_and_links(pod: Pod) -> None:
    accumulators.write(pod.models, "sums")
    await pod.put("models/sums", accumulators.spec())
    async with pod.running():
        instance = await pod.instance("sums", "1")
        assert instance.signature.batches, instance.reason
        async with Batcher(instance) as first, Batcher(instance) as second:
            replies = [
                await run(first, [row(1, start=True), 0, row(2, start=True)], 1, 100, 2),
                await run(second, [row(1, start=True)], 50),
                await run(first, [row(2), row(1)], 20, 10),
                await run(second, [row(1, end=True)], 5),
                await run(first, [row(1)], 100),
            ]
            unknown = await run(second, [row(1)], 1)
            over = await run(first, [row(2)], 1, sequences_over=[2])
        async with Batcher(instance) as third:
            gone = await run(third, [row(1)], 1)

    assert [output(reply, "y")[:, 0].tolist() for reply in replies] == [[1, 100, 2], [50], [22, 11], [55], [111]]
    assert [tensor.name for tensor in replies[0].outputs] == ["y", "who", "told"]
    for refused in (unknown, over, gone):
        assert (refused.code, "has no state here" in refused.message) == (3, True)


async def test_a_spec_that_does_not_fit_the_artifact_says_so_and_a_better_one_loads(pod: Pod) -> None:
    accumulators.write(pod.models, "sums")
    wrong = [{"input_name": "total", "output_name": "sum_next"}]
    await pod.put("models/sums", accumulators.spec(state=wrong))
    async with pod.running():
        failed = await pod.instance("sums", "1", FAILED)
        await pod.put("models/sums", accumulators.spec())
        ready = await pod.instance("sums", "1")

    assert "sequence_batching names input 'total'; the artifact's inputs are x, sum, start" in failed.reason
    assert ready.reason == ""
