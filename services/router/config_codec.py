"""A version's configuration in Triton's words: what callers may send it, how it is batched, what runs it."""

from collections.abc import Iterator
from typing import Any

from services.core.batching_spec import Batching, ControlInput, QueuePolicy, SequenceBatching
from services.core.model_spec import Instances, ModelSpec, VersionPolicy
from services.core.signature import Signature, TensorSpec
from turnout.triton import model_config_pb2 as pb

# The framework's name in Triton, by what a platform begins with; one that Triton has not keeps its own.
_BACKENDS = {
    "onnxruntime": "onnxruntime",
    "tensorflow": "tensorflow",
    "pytorch": "pytorch",
    "xgboost": "fil",
    "lightgbm": "fil",
    "mlflow": "mlflow",
}
_KINDS = {"auto": "KIND_AUTO", "cpu": "KIND_CPU", "gpu": "KIND_GPU"}


def model_config(name: str, spec: ModelSpec, signature: Signature) -> pb.ModelConfig:
    """`signature` as callers see it, of one version; `spec` as it holds for that version."""
    batching = spec.batching
    rows = batching.max_batch_size if signature.batches else 0
    config = pb.ModelConfig(
        name=name,
        platform=signature.platform,
        backend=_BACKENDS.get(signature.platform.partition("_")[0], signature.platform),
        version_policy=_version_policy(spec.version_policy),
        max_batch_size=rows,
        input=[pb.Input(name=s.name, data_type=_datatype(s), **_dims(s, rows)) for s in signature.inputs],
        output=[pb.Output(name=s.name, data_type=_datatype(s), **_dims(s, rows)) for s in signature.outputs],
        instance_group=[_instances(name, spec.instances)],
    )
    if signature.decoupled:
        config.model_transaction_policy.decoupled = True
    if batching.sequence_batching is not None:
        config.sequence_batching.CopyFrom(_sequences(batching.sequence_batching))
    elif rows:
        config.dynamic_batching.CopyFrom(_dynamic(batching))
    return config


def _datatype(spec: TensorSpec) -> str:
    return "TYPE_STRING" if spec.datatype == "BYTES" else f"TYPE_{spec.datatype}"


def _dims(spec: TensorSpec, rows: int) -> dict[str, Any]:
    """Without the rows' dimension where there is one. Triton has no empty `dims`: there one of size 1 is reshaped."""
    dims = spec.shape[1:] if rows else spec.shape
    return {"dims": dims} if dims else {"dims": (1,), "reshape": pb.Reshape()}


def _version_policy(policy: VersionPolicy) -> pb.VersionPolicy:
    if policy.specific is not None:
        return pb.VersionPolicy(specific=pb.VersionPolicy.Specific(versions=map(int, policy.specific)))
    if policy.all:
        return pb.VersionPolicy(all=pb.VersionPolicy.All())
    return pb.VersionPolicy(latest=pb.VersionPolicy.Latest(num_versions=policy.latest or 1))


def _instances(name: str, instances: Instances) -> pb.InstanceGroup:
    return pb.InstanceGroup(
        name=f"{name}_0",
        count=instances.count,
        kind=_KINDS[instances.kind],
        gpus=[gpu for gpu in instances.gpus if isinstance(gpu, int)],
    )


def _dynamic(batching: Batching) -> pb.DynamicBatching:
    return pb.DynamicBatching(
        preferred_batch_size=batching.preferred_batch_size,
        max_queue_delay_microseconds=batching.max_queue_delay_microseconds,
        preserve_ordering=batching.preserve_ordering,
        priority_levels=batching.priority_levels,
        default_priority_level=batching.default_priority_level,
        default_queue_policy=_queue_policy(batching, QueuePolicy()),
        priority_queue_policy={
            level: _queue_policy(batching, policy) for level, policy in batching.priority_queue_policy.items()
        },
    )


def _queue_policy(batching: Batching, policy: QueuePolicy) -> pb.QueuePolicy:
    """A level's own, and what `batching` says for all where that is silent."""
    timeout_us, override = policy.default_timeout_microseconds, policy.allow_timeout_override
    return pb.QueuePolicy(
        timeout_action=policy.timeout_action or batching.timeout_action,
        default_timeout_microseconds=batching.default_timeout_microseconds if timeout_us is None else timeout_us,
        allow_timeout_override=batching.allow_timeout_override if override is None else override,
        max_queue_size=policy.max_queue_size or batching.max_queue_size,
    )


def _sequences(sequences: SequenceBatching) -> pb.SequenceBatching:
    made = pb.SequenceBatching(
        max_sequence_idle_microseconds=sequences.max_sequence_idle_microseconds,
        control_input=[
            pb.SequenceBatching.ControlInput(name=each.name, control=list(_control(each)))
            for each in sequences.control_input
        ],
        state=[
            pb.SequenceBatching.State(input_name=each.input_name, output_name=each.output_name)
            for each in sequences.state
        ],
    )
    if sequences.oldest is not None:
        made.oldest.max_candidate_sequences = sequences.oldest.max_candidate_sequences
        made.oldest.preferred_batch_size.extend(sequences.oldest.preferred_batch_size)
        made.oldest.max_queue_delay_microseconds = sequences.oldest.max_queue_delay_microseconds
        return made
    made.direct.SetInParent()
    if sequences.direct is not None:
        made.direct.max_queue_delay_microseconds = sequences.direct.max_queue_delay_microseconds
        made.direct.minimum_slot_utilization = sequences.direct.minimum_slot_utilization
    return made


def _control(control: ControlInput) -> Iterator[pb.SequenceBatching.Control]:
    is_flag = control.kind != "CORRID"
    yield pb.SequenceBatching.Control(
        kind=f"CONTROL_SEQUENCE_{control.kind}", fp32_false_true=control.false_true if is_flag else ()
    )
