"""Triton's ModelConfig, as far as it means something here, in the words of models/MODEL; pure."""

from collections.abc import Mapping
from typing import Any

from services.core.errors import InvalidRequestError
from services.core.triton_config import FRAMEWORKS

_FRAMEWORKS = FRAMEWORKS | {"python": "python"}  # a load's own files: our class Model
_KINDS = {"KIND_AUTO": "auto", "KIND_CPU": "cpu", "KIND_GPU": "gpu"}
_SIMPLE_BATCHING = ("preferred_batch_size", "max_queue_delay_microseconds", "preserve_ordering", "priority_levels",
                    "default_priority_level")  # fmt: skip
_QUEUE_POLICY = ("timeout_action", "default_timeout_microseconds", "allow_timeout_override", "max_queue_size")


def in_our_words(model: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with what it says in Triton's words said in ours; our own fields as they are."""
    fields = dict(config)
    named = fields.pop("name", model)
    if named != model:
        raise InvalidRequestError(f"config.name is {named!r}, but the model is {model!r}")
    if batching := _batching(fields):
        fields["batching"] = batching
    for name in ("backend", "platform"):
        if (said := fields.pop(name, "")) != "":
            if not isinstance(said, str) or said not in _FRAMEWORKS:
                raise InvalidRequestError(f"config.{name} {said!r} is unknown: {', '.join(sorted(_FRAMEWORKS))}")
            fields["framework"] = _FRAMEWORKS[said]
    if "version_policy" in fields:
        fields["version_policy"] = _policy(_object(fields["version_policy"], "config.version_policy"))
    if "instance_group" in fields:
        fields["instances"] = _instances(fields.pop("instance_group"))
    return fields


def _batching(fields: dict[str, Any]) -> Mapping[str, Any]:
    """What `fields` say of batching, taken out of them."""
    batching = dict(_object(fields.pop("batching", {}), "config.batching"))
    for name in ("max_batch_size", "sequence_batching"):
        if name in fields:
            batching[name] = fields.pop(name)
    if "dynamic_batching" in fields:
        batching |= _dynamic(_object(fields.pop("dynamic_batching"), "config.dynamic_batching"))
    return batching


def _dynamic(given: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: given[name] for name in _SIMPLE_BATCHING if name in given}
    policy = _object(given.get("default_queue_policy", {}), "config.dynamic_batching.default_queue_policy")
    known |= _checked(policy, _QUEUE_POLICY, "config.dynamic_batching.default_queue_policy")
    if "priority_queue_policy" in given:
        known["priority_queue_policy"] = given["priority_queue_policy"]
    _checked(given, (*_SIMPLE_BATCHING, "default_queue_policy", "priority_queue_policy"), "config.dynamic_batching")
    return known


def _policy(given: Mapping[str, Any]) -> dict[str, Any]:
    """Triton's {"latest": {"num_versions": 2}}, or ours as it is."""
    said = dict(given)
    if isinstance(said.get("latest"), Mapping):
        latest = _checked(said["latest"], ("num_versions",), "config.version_policy.latest")
        said["latest"] = latest.get("num_versions", 1)
    if isinstance(said.get("all"), Mapping):
        said["all"] = True
    if isinstance(said.get("specific"), Mapping):
        versions = _checked(said["specific"], ("versions",), "config.version_policy.specific").get("versions", [])
        said["specific"] = [str(version) for version in versions] if isinstance(versions, list) else versions
    return said


def _instances(groups: object) -> dict[str, Any]:
    """The groups as one: all of a kind, their counts added."""
    if not isinstance(groups, list) or not all(isinstance(group, Mapping) for group in groups):
        raise InvalidRequestError("config.instance_group is no list of objects")
    known = [_checked(group, ("name", "count", "kind", "gpus"), "config.instance_group") for group in groups]
    kinds = {str(group.get("kind", "KIND_AUTO")) for group in known}
    counts = [group.get("count", 1) for group in known]
    if len(kinds) > 1 or not kinds <= _KINDS.keys() or not all(isinstance(count, int) for count in counts):
        raise InvalidRequestError(f"config.instance_group: one kind of {', '.join(_KINDS)}, and a whole count")
    made: dict[str, Any] = {"count": sum(counts)} if sum(counts) else {}
    if kinds:
        made["kind"] = _KINDS[kinds.pop()]
    if not all(isinstance(group.get("gpus", []), list) for group in known):
        raise InvalidRequestError("config.instance_group.gpus is no list")
    gpus = [gpu for group in known for gpu in group.get("gpus", [])]
    return made | ({"gpus": gpus} if gpus else {})


def _checked(given: Mapping[str, Any], known: tuple[str, ...], where: str) -> dict[str, Any]:
    for name in given:
        if name not in known:
            raise InvalidRequestError(f"{where}.{name} is not taken: {', '.join(known)} are")
    return dict(given)


def _object(given: object, where: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidRequestError(f"{where} is no object")
    return given
