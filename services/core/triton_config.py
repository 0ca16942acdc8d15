"""Triton's config.pbtxt in the words of models/MODEL: what it asks for, what of that is not done, what is refused."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message

from services.core.imported import Imported, parse
from services.core.spec import BadValueError
from services.core.triton_batching import dynamic_fields, dynamic_notes, sequence_fields, sequence_notes
from turnout.triton import model_config_pb2 as pb

FILE = "config.pbtxt"
FRAMEWORKS = {
    "onnxruntime": "onnx", "onnxruntime_onnx": "onnx", "pytorch": "torch", "pytorch_libtorch": "torch",
    "tensorflow": "tensorflow", "tensorflow_savedmodel": "tensorflow",
}  # fmt: skip
_FOREST = "fil"
_REFUSED = {
    "ensemble": "ensembles are not run: a Python file with a class Model can call several models",
    "python": "Triton's Python models (class TritonPythonModel) are not run: give it our class Model",
    "tensorflow_graphdef": "a GraphDef is not loaded: save it as a SavedModel",
}
_DATATYPES = {pb.TYPE_STRING: "BYTES"}
_UNHEEDED_OF_GROUPS = ("profile", "rate_limiter", "passive", "secondary_devices", "host_policy")
_NO_MEANING = (  # and of no harm to what the model computes
    ("metric_tags", "metrics have no tags of a model's own"),
    ("model_metrics", "metrics have fixed buckets"),
    ("model_repository_agents", "SHA256SUMS in the version's folder is what is checked here"),
    ("response_cache", "answers are not cached"),
    ("model_operations", "libraries of custom operations are not loaded"),
    ("cc_model_filenames", "one file serves every device"),
    ("runtime", "the file that runs a model is not chosen"),
)


def read(model: str, text: str) -> Imported:
    """What `text` says of `model`. Raises BadValueError for what cannot be served as it is asked for."""
    config, unknown = parse(text, pb.ModelConfig)
    _refuse(model, config)
    try:
        fields = _fields(config)
    except (ValueError, KeyError) as error:  # of a number that stands for no word, or is too long to be one
        if isinstance(error, BadValueError):
            raise
        raise BadValueError(f"it has a number that means nothing: {error}") from None
    return Imported(model, fields, (*unknown, *_notes(config), *dynamic_notes(config), *sequence_notes(config)))


def _fields(config: pb.ModelConfig) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if framework := FRAMEWORKS.get(config.backend or config.platform):
        fields["framework"] = framework
    batching = dynamic_fields(config) | sequence_fields(config)
    if batching:
        fields["batching"] = batching
    if config.HasField("version_policy"):
        fields["version_policy"] = version_policy(config.version_policy)
    if instances := _instances(config):
        fields["instances"] = instances
    if sizes := sorted({each.batch_size for each in config.model_warmup if each.batch_size}):
        fields["warm_up"] = {"sizes": sizes}
    if framework == "torch":  # the others tell it themselves
        fields["signature"] = _signature(config)
    if config.model_transaction_policy.decoupled:
        fields["decoupled"] = True
    return fields


def version_policy(policy: Any) -> dict[str, Any]:
    """Triton's and TensorFlow Serving's have the same fields."""
    match policy.WhichOneof("policy_choice"):
        case "all":
            return {"all": True}
        case "specific":
            return {"specific": [str(version) for version in policy.specific.versions]}
        case _:
            return {"latest": policy.latest.num_versions or 1}


def _refuse(model: str, config: pb.ModelConfig) -> None:
    if config.name not in {"", model}:
        raise BadValueError(f"its name is {config.name!r}, but the model is {model!r}")
    backend = config.backend or config.platform
    if config.HasField("ensemble_scheduling"):
        backend = "ensemble"
    if backend in _REFUSED:
        raise BadValueError(_REFUSED[backend])
    if backend and backend not in FRAMEWORKS and backend != _FOREST:
        raise BadValueError(f"backend {backend!r} is not run: {', '.join(sorted({*FRAMEWORKS, _FOREST}))} are")
    if config.batch_input or config.batch_output:
        raise BadValueError("batch_input and batch_output are not made: pad_to is what ragged rows have here")
    if config.model_transaction_policy.decoupled and backend:
        raise BadValueError(f"decoupled is of models in Python here; backend {backend} gives one answer to a request")
    if config.max_batch_size < 0:
        raise BadValueError(f"max_batch_size {config.max_batch_size} is negative")


def _instances(config: pb.ModelConfig) -> dict[str, Any]:
    """All groups as one: their counts added, of the first one's kind."""
    made: dict[str, Any] = {}
    if groups := config.instance_group:
        made["count"] = sum(max(1, group.count) * max(1, len(group.gpus)) for group in groups)
        kind = {pb.InstanceGroup.KIND_GPU: "gpu", pb.InstanceGroup.KIND_CPU: "cpu"}.get(groups[0].kind)
        if kind:
            made["kind"] = kind
        gpus = sorted({gpu for group in groups for gpu in group.gpus}) if kind != "cpu" else []
        if gpus:
            made["gpus"] = gpus
    threads = config.parameters["intra_op_thread_count"].string_value if _has_threads(config) else ""
    return made | ({"threads": int(threads)} if threads.isdecimal() and int(threads) else {})


def _has_threads(config: pb.ModelConfig) -> bool:
    return "intra_op_thread_count" in config.parameters  # looking at a key of a protobuf map makes it


def _signature(config: pb.ModelConfig) -> dict[str, Any]:
    """Names as they are; where all end in __0, __1, … that is the order in which the model takes them."""
    return {
        "inputs": {each.name: _tensor(each, config) for each in _in_order(config.input)},
        "outputs": {each.name: _tensor(each, config) for each in _in_order(config.output)},
    }


def _in_order(tensors: Any) -> list[Any]:
    numbers = [each.name.rpartition("__")[2] for each in tensors]
    if all(number.isdecimal() for number in numbers):
        return [each for _, each in sorted(zip(map(int, numbers), tensors, strict=True), key=lambda pair: pair[0])]
    return list(tensors)


def _tensor(tensor: Any, config: pb.ModelConfig) -> dict[str, Any]:
    datatype = _DATATYPES.get(tensor.data_type) or pb.DataType.Name(tensor.data_type).removeprefix("TYPE_")
    dims = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
    return {"datatype": datatype, "shape": [*([-1] if config.max_batch_size else []), *dims]}


def _notes(config: pb.ModelConfig) -> Iterator[str]:
    for name, reason in _NO_MEANING:
        if _is_set(config, name):
            yield f"{name}: {reason}"
    for tensor in (*config.input, *config.output):
        yield from _tensor_notes(tensor)
    yield from _running_notes(config)
    if config.model_warmup:
        yield "model_warmup: its batch sizes are run, with made-up rows or recorded requests (warm_up.file)"
    if config.default_model_filename:
        yield "default_model_filename: the file is found by its kind; of several, model.* is it"
    if config.backend == _FOREST:
        yield "backend fil: XGBoost and LightGBM run the model; it takes x, and gives label and probabilities, or y"


def _running_notes(config: pb.ModelConfig) -> Iterator[str]:
    for group in config.instance_group:
        yield from (f"instance_group.{name} is not heeded" for name in _UNHEEDED_OF_GROUPS if _is_set(group, name))
    if len({group.kind for group in config.instance_group}) > 1:
        yield "instance_group: all instances are of the first group's kind"
    for name in sorted(config.parameters):
        if name != "intra_op_thread_count":
            yield f"parameters.{name} is not read"
    for name in ("execution_accelerators", "graph", "cuda", "eager_batching", "priority"):
        if _is_set(config.optimization, name):
            yield f"optimization.{name} is not heeded: the framework's own defaults hold"


def _tensor_notes(tensor: Any) -> Iterator[str]:
    if tensor.HasField("reshape"):
        yield f"{tensor.name}.reshape: callers send and get the model's own shape {list(tensor.reshape.shape)}"
    if _is_set(tensor, "label_filename"):
        yield f"{tensor.name}.label_filename: labels are not given with answers"
    for name in ("is_shape_tensor", "allow_ragged_batch", "optional", "is_non_linear_format_io"):
        if _is_set(tensor, name):
            yield f"{tensor.name}.{name} is not heeded"


def _is_set(message: Message, name: str) -> bool:
    """Whether a field of that name is there, and is not as it is by default."""
    return any(each.name == name for each, _ in message.ListFields())
