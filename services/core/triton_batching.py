"""How Triton's config.pbtxt batches, in the words of models/MODEL."""

from collections.abc import Iterator
from typing import Any

from services.core.batching_spec import Batching
from services.core.spec import BadValueError
from turnout.triton import model_config_pb2 as pb

_LEAST_QUEUE = Batching().max_queue_size
_USUAL_BATCH = Batching().max_batch_size
_KINDS = {
    pb.SequenceBatching.Control.CONTROL_SEQUENCE_START: "START",
    pb.SequenceBatching.Control.CONTROL_SEQUENCE_READY: "READY",
    pb.SequenceBatching.Control.CONTROL_SEQUENCE_END: "END",
    pb.SequenceBatching.Control.CONTROL_SEQUENCE_CORRID: "CORRID",
}


def dynamic_fields(config: pb.ModelConfig) -> dict[str, Any]:
    """`batching` as max_batch_size and dynamic_batching have it."""
    made: dict[str, Any] = {"max_batch_size": config.max_batch_size} if config.HasField("max_batch_size") else {}
    if config.max_batch_size > _LEAST_QUEUE:
        made["max_queue_size"] = 4 * config.max_batch_size
    if not config.HasField("dynamic_batching"):
        return made
    dynamic = config.dynamic_batching
    if dynamic.preferred_batch_size:
        made["preferred_batch_size"] = list(dynamic.preferred_batch_size)
    for name in ("max_queue_delay_microseconds", "preserve_ordering", "priority_levels", "default_priority_level"):
        if value := getattr(dynamic, name):
            made[name] = value
    if dynamic.HasField("default_queue_policy"):
        made |= _policy(dynamic.default_queue_policy, made)
    if dynamic.priority_queue_policy:
        made["priority_queue_policy"] = {
            str(level): _policy(policy, made) for level, policy in sorted(dynamic.priority_queue_policy.items())
        }
    return made


def dynamic_notes(config: pb.ModelConfig) -> Iterator[str]:
    if config.max_batch_size and not (config.HasField("dynamic_batching") or config.HasField("sequence_batching")):
        yield "there is no dynamic_batching, but requests share batches here, without a wait"
    dynamic = config.dynamic_batching
    policies = [dynamic.default_queue_policy, *dynamic.priority_queue_policy.values()]
    if any(policy.max_queue_size for policy in policies):
        yield "max_queue_size counts rows here, not requests"


def sequence_fields(config: pb.ModelConfig) -> dict[str, Any]:
    """`batching.sequence_batching`, if there is any. Raises BadValueError for what no sequence has here."""
    if not config.HasField("sequence_batching"):
        return {}
    given = config.sequence_batching
    if given.iterative_sequence:
        raise BadValueError("sequence_batching.iterative_sequence is not done")
    made: dict[str, Any] = {"control_input": [_control(each) for each in given.control_input]}
    if given.max_sequence_idle_microseconds:
        made["max_sequence_idle_microseconds"] = given.max_sequence_idle_microseconds
    made["state"] = [{"input_name": each.input_name, "output_name": each.output_name} for each in given.state]
    for state in given.state:
        if any(initial.data_file for initial in state.initial_state):
            raise BadValueError(f"the state {state.input_name} begins with a file: here it begins with zeros")
    if given.HasField("direct"):
        made["direct"] = {"max_queue_delay_microseconds": given.direct.max_queue_delay_microseconds} | (
            {"minimum_slot_utilization": given.direct.minimum_slot_utilization}
        )
    if given.HasField("oldest"):
        made["oldest"] = {
            "max_candidate_sequences": given.oldest.max_candidate_sequences,
            "preferred_batch_size": list(given.oldest.preferred_batch_size),
            "max_queue_delay_microseconds": given.oldest.max_queue_delay_microseconds,
        }
    return {"sequence_batching": {name: value for name, value in made.items() if value != []}}


def sequence_notes(config: pb.ModelConfig) -> Iterator[str]:
    if config.sequence_batching.oldest.preserve_ordering:
        yield "sequence_batching.oldest.preserve_ordering: only answers of one sequence are in order"


def _control(given: Any) -> dict[str, Any]:
    if len(given.control) != 1:
        raise BadValueError(f"sequence_batching.control_input {given.name} has {len(given.control)} controls, not one")
    control = given.control[0]
    pairs = [list(each) for each in (control.int32_false_true, control.fp32_false_true, control.bool_false_true)]
    values = next((pair for pair in pairs if pair), [])
    made: dict[str, Any] = {"name": given.name, "kind": _KINDS[control.kind]}
    return made | ({"false_true": [float(value) for value in values]} if values else {})


def _policy(policy: Any, batching: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "timeout_action": pb.QueuePolicy.TimeoutAction.Name(policy.timeout_action),
        "allow_timeout_override": policy.allow_timeout_override,
    }
    if policy.default_timeout_microseconds:
        made["default_timeout_microseconds"] = policy.default_timeout_microseconds
    if policy.max_queue_size:
        made["max_queue_size"] = max(policy.max_queue_size, batching.get("max_batch_size", _USUAL_BATCH))
    return made
