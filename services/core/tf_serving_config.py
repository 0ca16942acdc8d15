"""TensorFlow Serving's model configuration file in the words of models/MODEL."""

from collections.abc import Iterator
from typing import Any

from services.core.imported import Imported, parse
from services.core.names import is_model_name
from services.core.spec import BadValueError
from services.core.triton_config import version_policy
from turnout.tfserving import model_server_config_pb2 as pb


def read(text: str) -> list[Imported]:
    """Every model that `text` lists. Raises BadValueError for what is no such file, or lists what cannot be served."""
    config, unknown = parse(text, pb.ModelServerConfig)
    if not config.model_config_list.config:
        raise BadValueError("it has no model_config_list with a config")
    return list(models_of(config, unknown))


def models_of(config: pb.ModelServerConfig, notes: tuple[str, ...] = ()) -> Iterator[Imported]:
    """Every model of a list, each with `notes`. Raises BadValueError for one that cannot be served."""
    return (_model(each, notes) for each in config.model_config_list.config)


def _model(given: pb.ModelConfig, unknown: tuple[str, ...]) -> Imported:
    if not is_model_name(given.name) or not given.base_path:
        raise BadValueError(f"config {given.name!r} needs a name that is one, and a base_path")
    if given.model_platform not in {"", "tensorflow"} or given.model_type == pb.ModelConfig.OTHER:
        raise BadValueError(f"{given.name}: model_platform {given.model_platform!r} is not run: tensorflow is")
    root, _, folder = given.base_path.rstrip("/").rpartition("/")
    fields: dict[str, Any] = {"repository": root or "/", "framework": "tensorflow"}
    if folder != given.name:
        fields["folder"] = folder
    if given.HasField("model_version_policy"):
        fields["version_policy"] = version_policy(given.model_version_policy)
    notes = ("logging_config: see turnout record",) if given.HasField("logging_config") else ()
    labels = {label: str(version) for label, version in given.version_labels.items()}
    return Imported(given.name, fields, (*unknown, *notes), labels)
