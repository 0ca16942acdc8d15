"""A mirror and its candidate's answer -> how each output differs."""

from services.core import stages
from services.core.compare import Difference, compare
from services.core.names import is_model_name, is_version
from services.core.signature import Given
from services.shadow.tally import OUTPUTS_PER_PAIR, Answer, Pair
from turnout.v1 import link_pb2, shadow_pb2, tensor_pb2

_COMPUTE = stages.REMOTE.index(stages.COMPUTE)
_MAX_NAME = 256  # characters of an output's name
_MAX_REQUEST_ID = 128  # characters kept


def pair_of(mirror: shadow_pb2.Mirror) -> Pair | None:
    """Whom a mirror compares; None when it is no comparison of one version with another."""
    pair = Pair(mirror.model, mirror.served_version, mirror.candidate_version)
    is_named = is_model_name(pair.model) and is_version(pair.served) and is_version(pair.candidate)
    is_filled = mirror.rows > 0 and 0 < len(mirror.outputs) <= OUTPUTS_PER_PAIR
    if is_named and is_filled and all(len(output.name) <= _MAX_NAME for output in mirror.outputs):
        return pair
    return None


def compare_answer(mirror: shadow_pb2.Mirror, reply: link_pb2.Reply) -> Answer:
    """Every output that the caller was answered, against the candidate's of the same name."""
    return Answer(
        mirror.request_id[:_MAX_REQUEST_ID],
        mirror.rows,
        _differences(mirror, {output.name: output for output in reply.outputs}),
        mirror.served_compute_ns / 1e9,
        reply.stages_ns[_COMPUTE] / 1e9 if len(reply.stages_ns) > _COMPUTE else 0.0,
    )


def _differences(mirror: shadow_pb2.Mirror, answered: dict[str, tensor_pb2.Tensor]) -> list[Difference]:
    found = []
    for output in mirror.outputs:
        candidate = answered.get(output.name)
        found.append(compare(mirror.rows, _given(output), None if candidate is None else _given(candidate)))
    return found


def _given(tensor: tensor_pb2.Tensor) -> Given:
    return Given(tensor.name, tensor.datatype, tuple(tensor.shape), tensor.data)
