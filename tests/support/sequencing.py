"""A batcher of a model that keeps state, on a bench: every control input, one state, requests of one number each."""

import struct
from typing import Any

from services.batcher.policy import BatchPolicy
from services.batcher.sequence_batcher import SequenceBatcher
from services.core.model_spec import ModelSpec
from services.core.signature import Signature, TensorSpec
from tests.support.batching import Bench, Puppet, numbers_of
from turnout.v1 import link_pb2 as pb

CONTROLS = [
    {"name": "start", "kind": "START"},
    {"name": "ready", "kind": "READY", "false_true": [-1, 1]},
    {"name": "end", "kind": "END"},
    {"name": "id", "kind": "CORRID"},
]
SIGNATURE = Signature(
    (
        TensorSpec("x", "INT32", (-1,)),
        TensorSpec("start", "BOOL", (-1, 1)),
        TensorSpec("ready", "INT32", (-1,)),
        TensorSpec("end", "FP32", (-1, 1)),
        TensorSpec("id", "UINT64", (-1, 1)),
        TensorSpec("before", "INT32", (-1,)),
    ),
    (TensorSpec("y", "INT32", (-1,)), TensorSpec("after", "INT32", (-1,))),
    batches=True,
)
STATE = [{"input_name": "before", "output_name": "after"}]


def policy_of(*, batches: bool = True, batching: dict[str, Any] | None = None, **sequences: Any) -> BatchPolicy:
    spec = {"control_input": CONTROLS, "state": STATE, "max_sequence_idle_microseconds": 100_000} | sequences
    given = {"max_batch_size": 4, "sequence_batching": spec} | (batching or {})
    return BatchPolicy.of(ModelSpec.model_validate({"batching": given}), batches=batches)


class SequenceBench(Bench):
    """`step` sends one request of a sequence; `run` lets a worker answer its oldest batch with x."""

    batcher: SequenceBatcher

    def __init__(self, *, slots: int = 1, workers: int = 1, signature: Signature = SIGNATURE, **sequences: Any) -> None:
        policy = policy_of(batches=signature.batches, **sequences)
        super().__init__(policy, slots=slots, workers=workers, signature=signature)

    def step(self, name: int | str, value: int = 0, *, start: bool = False, end: bool = False, **fields: Any) -> int:
        sequence = pb.Sequence(start=start, end=end)
        if isinstance(name, int):
            sequence.number = name
        else:
            sequence.text = name
        (number,) = self.send([value], sequence=sequence, **fields)
        return number

    def run(self, puppet: Puppet | None = None) -> list[int]:
        """Answer the oldest batch with its own x; these."""
        puppet = puppet or self.puppet
        request = puppet.batches()[0]
        reply = pb.Reply(id=request.id, executed=pb.EXECUTED_YES, digest="sha256:1", stages_ns=[1, 2, 3], final=True)
        given = tensor(request, "x")
        reply.outputs.add(name="y", datatype="INT32", shape=given.shape, data=given.data)
        puppet.reply(reply)
        return numbers_of(given.data)

    def rows_of(self, puppet: Puppet | None = None) -> list[list[int]]:
        """x of the batches with a worker."""
        return [numbers_of(tensor(request, "x").data) for request in (puppet or self.puppet).batches()]

    def told(self, number: int) -> tuple[int, str]:
        reply = self.replies()[number]
        return reply.code, reply.message


def tensor(request: pb.Request, name: str) -> Any:
    (found,) = [given for given in request.inputs if given.name == name]
    return found


def controls(request: pb.Request) -> dict[str, list[Any]]:
    """What a batch tells the model of its rows."""
    codes = {"start": "?", "ready": "i", "end": "f", "id": "Q"}
    return {
        name: list(struct.unpack(f"<{request.rows}{code}", tensor(request, name).data)) for name, code in codes.items()
    }


def entries(request: pb.Request) -> list[tuple[int, bool, bool]]:
    """What a batch tells the worker of its rows: own number, starts, ends."""
    return [(entry >> 2, bool(entry & 2), bool(entry & 1)) for entry in request.sequence_rows]
