"""docs/configuration.md, made from the settings and specs: run `.venv/bin/python docs/generate_configuration.py`.

Names, types, bounds and defaults are pydantic's; what a field means is the comment beside it in the source, or a
sentence of MEANINGS where the code needs none. A test holds the page current.
"""  # noqa: INP001 - a script, not a package

import inspect
import io
import json
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, SecretStr

from services.batcher.config import BatcherConfig
from services.chassis.config import ServiceConfig
from services.core import batching_spec
from services.core.caller_spec import CallerLimits, CallerSpec, CertificateName, KeyHash, Token
from services.core.declared import DeclaredSignature, DeclaredTensor
from services.core.feature_spec import Column, FeatureViewSpec
from services.core.model_spec import Access, FeatureUse, Instances, Limits, ModelSpec, Placement, VersionPolicy, WarmUp
from services.core.onnx_spec import OnnxSettings
from services.core.route_spec import Canary, Fallback, Match, RouteSpec
from services.core.settings_spec import LogSettings, TraceSetting, TraceSettings
from services.core.text_spec import Text
from services.core.torch_spec import TorchSettings
from services.feature_proxy.config import FeatureProxyConfig
from services.router.config import RouterConfig
from services.runtime.config import RuntimeConfig
from services.shadow.config import ShadowConfig

PAGE = Path(__file__).with_name("configuration.md")

SERVICES: dict[str, type[ServiceConfig]] = {
    "router": RouterConfig,
    "batcher": BatcherConfig,
    "runtime": RuntimeConfig,
    "feature_proxy": FeatureProxyConfig,
    "shadow": ShadowConfig,
}
KEYS: dict[str, tuple[type[BaseModel], ...]] = {
    "models/MODEL": (
        ModelSpec,
        Placement,
        VersionPolicy,
        OnnxSettings,
        batching_spec.Batching,
        batching_spec.QueuePolicy,
        batching_spec.Padding,
        batching_spec.SequenceBatching,
        batching_spec.Direct,
        batching_spec.Oldest,
        batching_spec.ControlInput,
        batching_spec.SequenceState,
        Text,
        DeclaredSignature,
        DeclaredTensor,
        TorchSettings,
        WarmUp,
        Instances,
        Limits,
        FeatureUse,
        Access,
    ),
    "routes/MODEL": (RouteSpec, Canary, Match, Fallback),
    "callers/CALLER": (CallerSpec, KeyHash, Token, CertificateName, CallerLimits),
    "feature_views/VIEW": (FeatureViewSpec, Column),
    "settings/traces": (TraceSettings, TraceSetting),
    "settings/logs": (LogSettings,),
}
# Said here because the code says it by the name alone; a comment in the code comes first.
MEANINGS = {
    "ServiceConfig.etcd_prefix": "of all keys",
    "ServiceConfig.etcd_user": "empty = etcd asks for no log-in",
    "ServiceConfig.etcd_password": "of that user",
    "ServiceConfig.etcd_tls": "etcd",
    "ServiceConfig.link_tls": "links",
    "ServiceConfig.metrics_tls": "metrics and health",
    "RouterConfig.tls": "gRPC and REST",
    "ServiceConfig.drain_s": "to finish what is in flight after SIGTERM or SIGINT",
    "ServiceConfig.log_level": "of this process; libraries speak from warning on, at `debug` from info on",
    "RouterConfig.grpc_address": "host:port of the gRPC API",
    "RouterConfig.rest_address": "host:port of the REST API",
    "RouterConfig.metrics_address": "host:port of /metrics and health",
    "RouterConfig.max_message_bytes": "of one request, on either protocol",
    "BatcherConfig.pod": "name of this pod; REPLICA in endpoints/ is made from it",
    "FeatureProxyConfig.link_address": "host:port that routers dial",
    "FeatureProxyConfig.cache_max_entries": "entities held",
    "FeatureProxyConfig.cache_max_bytes": "held together",
    "FeatureProxyConfig.redis_connect_s": "to open a connection",
    "RuntimeConfig.load_timeout_s": "from the start of a worker until it is READY",
    "ModelSpec.placement": "which pods load it",
    "ModelSpec.version_policy": "which versions of the repository are loaded besides those that a route names",
    "ModelSpec.keep_previous": "versions that stay loaded though nobody asks for them any more, for a quick way back",
    "ModelSpec.batching": "when requests leave the queue together",
    "ModelSpec.instances": "worker processes of a version in a pod",
    "ModelSpec.limits": "bounds of one request and of one worker",
    "ModelSpec.default_deadline_ms": "of a request; a caller's own deadline can only shorten it",
    "ModelSpec.required_for_ready": "a router is not ready before this model's stable version was, once",
    "ModelSpec.features": "inputs that the mesh fills in",
    "ModelSpec.access": "who may call",
    "ModelSpec.versions": "version -> fields that differ for it; nested objects are overridden field by field",
    "Placement.pool": "pods started with this TURNOUT_RUNTIME_POOL",
    "VersionPolicy.latest": "the newest N",
    "VersionPolicy.all": "true: every version there is",
    "VersionPolicy.specific": "these, as far as they are there",
    "Batching.max_queue_delay_microseconds": "how long a batch below its preferred size may wait though a slot is free",
    "Batching.max_queue_bytes": "of inputs that wait",
    "Batching.allow_timeout_override": "may a request's `timeout` parameter shorten the wait (or set one)?",
    "Limits.max_request_rows": "null = the smaller of 16 x max_batch_size and max_queue_size",
    "Limits.max_request_bytes": "of a request's inputs, those that features fill included",
    "Limits.max_execution_ms": "of one batch; past it the worker is killed",
    "Limits.max_memory_bytes": "resident memory of a worker and what it started; past it all are killed; null = none",
    "FeatureUse.view": "of feature_views/",
    "FeatureUse.input": "of the model, which callers no longer send",
    "FeatureUse.columns": "in this order; empty = all of the view",
    "Access.anonymous": "may anybody call it? null = as TURNOUT_ROUTER_ANONYMOUS says",
    "RouteSpec.stable": "gets all that nothing else claims",
    "RouteSpec.canary": "shares of the traffic; short form: an object of version -> percent",
    "RouteSpec.labels": "name -> version, for callers that name a label in place of a version",
    "RouteSpec.match": "tried in order, after pins and before the split",
    "RouteSpec.fallback": "what answers when stable has no ready replica",
    "RouteSpec.until": "a note for people: nothing acts on it yet",
    "RouteSpec.author": "who wrote this",
    "RouteSpec.reason": "and why",
    "Canary.version": "of the model",
    "Canary.percent": "0 to 100, at most 4 decimals",
    "Canary.at": "where its range starts, in percent of the circle",
    "Match.header": "in lower case",
    "Match.equals": "the whole value",
    "Match.version": "that gets such requests",
    "Fallback.version": "of the model",
    "TraceSettings.models": "model -> what differs for it",
    "LogSettings.level": "null = as each router was started",
    "Column.name": "of the feature",
    "Column.datatype": "of its values",
    "Column.shape": "[] = a scalar",
    "Column.default": "what a missing value becomes; NaN is allowed",
    "FeatureViewSpec.columns": "at least one",
    "FeatureViewSpec.version": "that a model's `features` may insist on",
    "FeatureViewSpec.on_stale": "a value older than ttl_s",
}


class Row(NamedTuple):
    name: str
    kind: str
    default: str
    meaning: str


def rows(cls: type[BaseModel], *, own: bool = False) -> list[Row]:
    """A row a field; `own` leaves out what a service shares with the others, unless it has another default."""
    schema = cls.model_json_schema()
    shared = ServiceConfig.model_json_schema()["properties"] if own else {}
    said = {name: text for base in reversed(cls.__mro__) if base.__module__.startswith("services") for name, text in
            comments(base).items()}  # fmt: skip
    return [
        row
        for name, field in schema["properties"].items()
        if shared.get(name, {}).get("default", ...) != field.get("default", None)
        for row in group_rows(cls, name)
        or [
            Row(
                name,
                kind(field),
                default(cls, name),
                (said.get(name) or meaning(cls, name)).replace("None =", "null ="),
            )
        ]
    ]


def group_rows(cls: type[BaseModel], name: str) -> list[Row]:
    """The settings of a group, which a process reads each from a variable of its own."""
    group = cls.model_fields[name].annotation
    if not (issubclass(cls, ServiceConfig) and isinstance(group, type) and issubclass(group, BaseModel)):
        return []
    return [
        row._replace(
            name=f"{name}_{row.name}",
            default="empty" if row.default == "null" else row.default,
            meaning=f"{MEANINGS[f'{cls.__name__}.{name}']}: {row.meaning}",
        )
        for row in rows(group)
    ]


def meaning(cls: type[BaseModel], name: str) -> str:
    """Raises KeyError for a field that nobody has explained."""
    for base in cls.__mro__:
        if f"{base.__name__}.{name}" in MEANINGS:
            return MEANINGS[f"{base.__name__}.{name}"]
    raise KeyError(f"{cls.__name__}.{name}: put a comment beside it, or a sentence into MEANINGS")


def comments(cls: type[BaseModel]) -> dict[str, str]:
    """Field -> the comment above and beside it."""
    found: dict[str, str] = {}
    above: list[str] = []
    for line in statements(inspect.getsource(cls)):
        words = [token.string.removeprefix("#").strip() for token in line if token.type == tokenize.COMMENT]
        code = [token for token in line if token.type != tokenize.COMMENT]
        if not code:
            above += words
            continue
        if len(code) > 1 and code[1].string == ":" and above + words:
            found[code[0].string] = " ".join([*above, *words])
        above = []
    return found


def statements(source: str) -> Iterator[list[tokenize.TokenInfo]]:
    """The tokens of each logical line, and of each line that is a comment only."""
    blanks = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    line: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(inspect.cleandoc(source) + "\n").readline):
        is_over = token.type == tokenize.NEWLINE or (token.type == tokenize.NL and all(
            part.type == tokenize.COMMENT for part in line))  # fmt: skip
        if is_over:
            yield line
            line = []
        elif token.type != tokenize.NL and token.type not in blanks:
            line.append(token)


def kind(field: dict[str, Any]) -> str:
    """Type and bounds in words."""
    options = [option for option in field.get("anyOf", [field]) if option.get("type") != "null"]
    return " or ".join(_one_kind(option) for option in options)


def _one_kind(field: dict[str, Any]) -> str:
    if "$ref" in field:
        return f"[{(name := field['$ref'].rpartition('/')[2])}](#{name.lower()})"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array" and "prefixItems" in field:
        return f"list of {len(field['prefixItems'])}: {_one_kind(field['prefixItems'][0])}"
    if field.get("type") == "array":
        return f"list of {kind(field['items'])}"
    if field.get("type") == "object":
        inner = field.get("additionalProperties")
        is_told = isinstance(inner, dict) and bool({"type", "$ref"} & inner.keys())
        return f"object of {_one_kind(inner)}" if is_told else "object"
    formats = {"date-time": "date and time with zone", "path": "path"}
    types = {"string": "text", "integer": "whole number", "boolean": "true or false"}
    named = str(field.get("type", "any"))
    return formats.get(field.get("format", ""), types.get(named, named)) + _bounds(field)


def _bounds(field: dict[str, Any]) -> str:
    least, most = field.get("minimum"), field.get("maximum")
    if least is not None and most is not None:
        return f", {least:,g} to {most:,g}" if most < 1e6 else f", {least:,} to {most:,}"
    if least is not None:
        return f", from {least:,}"
    if "exclusiveMinimum" in field:
        return f", over {field['exclusiveMinimum']:g}" + (f", to {most:g}" if most is not None else "")
    if "pattern" in field:
        return f" matching `{field['pattern'].replace('|', chr(92) + '|')}`"
    return ""


def default(cls: type[BaseModel], name: str) -> str:
    field = cls.model_fields[name]
    if field.is_required():
        return "required"
    value = field.get_default()
    if isinstance(value, BaseModel):
        return "its defaults" if not value.model_fields_set else f"`{value.model_dump_json(exclude_defaults=True)}`"
    if isinstance(value, Path):
        value = str(value)
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if value is None:
        return "null"
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"`{value}` ({value >> 20} MiB)"
    return f"`{json.dumps(value)}`" if value != "" else "empty"


def table(first: str, lines: list[Row]) -> str:
    head = f"| {first} | takes | default | |\n|---|---|---|---|\n"
    return head + "".join(f"| `{row.name}` | {row.kind} | {row.default} | {row.meaning} |\n" for row in lines)


def settings_part(service: str, cls: type[ServiceConfig]) -> str:
    prefix = f"TURNOUT_{service.upper()}_"
    lines = [row._replace(name=prefix + row.name.upper()) for row in rows(cls, own=True)]
    return f"### {service}\n\n`python -m services.{service}`\n\n{table('variable', lines)}"


def spec_part(key: str, classes: tuple[type[BaseModel], ...]) -> str:
    parts = [f"### {key}\n\n"]
    for cls in classes:
        said = (inspect.getdoc(cls) or "").replace("|", "\\|")
        heading = "" if cls is classes[0] else f"#### {cls.__name__}\n\n"
        parts.append(f"{heading}{said}\n\n{table('field', rows(cls))}\n")
    return "".join(parts).rstrip() + "\n"


def page() -> str:
    shared = table("setting", [row._replace(name=row.name.upper()) for row in rows(ServiceConfig)])
    parts = [INTRODUCTION, "## Every service\n\n" + SHARED + shared, "## Each service\n\n" + EACH]
    parts += [settings_part(service, cls) for service, cls in SERVICES.items()]
    parts += [COMMAND_LINE, KEYS_INTRODUCTION]
    parts += [spec_part(key, classes) for key, classes in KEYS.items()]
    return "\n".join(part.rstrip() + "\n" for part in parts)


INTRODUCTION = """# Configuration

<!-- Generated by docs/generate_configuration.py from the code; a change belongs there. -->

Two kinds, kept apart:

* **Settings of a process** come from its environment and are read once, at start: where it listens, where etcd is, how
  much it may hold. A change needs a restart.
* **What operators edit while it runs** lies in etcd: models, routes, callers, feature views. A change takes effect
  within a second, without a restart.
"""

SHARED = """A setting `FOO` of the router is the variable `TURNOUT_ROUTER_FOO`; the other services' prefixes are
`TURNOUT_BATCHER_`, `TURNOUT_RUNTIME_`, `TURNOUT_FEATURE_PROXY_` and `TURNOUT_SHADOW_`. A misspelt or ill-typed one
stops the start: each fault is said in a line, and the exit code is 2. An address that is taken is exit code 3.

`TURNOUT_CONFIG` may name a TOML file with a table for each service; the environment wins over it.

```toml
[router]
etcd_endpoints = "etcd-0:2379,etcd-1:2379,etcd-2:2379"
grpc_address = "0.0.0.0:8001"

[batcher]
etcd_endpoints = "etcd-0:2379,etcd-1:2379,etcd-2:2379"
link_address = "0.0.0.0:8101"
advertise_address = "10.0.3.17:8101"
```

"""

EACH = """What is listed here is added to the settings above, or has another default. A batcher that others reach
at another address than it listens on (`0.0.0.0`) says so with `ADVERTISE_ADDRESS`. The feature proxy and the comparator
tell routers what they listen on: give them a host name or address that routers can dial.
"""

COMMAND_LINE = """### The command line

`turnout` takes options first, then these variables, then what a mesh in its data folder says of itself.

| variable | |
|---|---|
| `TURNOUT_DATA_DIR` | folder of a mesh that `turnout up` runs; default `.turnout` |
| `ETCD_ENDPOINTS` | comma-separated host:port; `turnout up` then starts no etcd of its own |
| `ETCD_PREFIX` | prefix of all keys; default `/turnout/` |
| `ETCD_USER`, `ETCD_PASSWORD` or `ETCD_PASSWORD_FILE` | log-in, where etcd asks for one |
| `ETCD_TLS_CA`, `ETCD_TLS_CERTIFICATE`, `ETCD_TLS_KEY` | as the services' settings of that name |
| `LINK_TLS_CERTIFICATE`, `…_KEY`, `…_CA`, `…_PEER_NAME` | likewise, of `record` and `shadow report`: they use links |
| `TURNOUT_TLS_CA` | PEM of routers' authorities, or `system`: speak TLS to them; also `turnout --tls-ca` |
| `TURNOUT_CERT`, `TURNOUT_KEY` | PEM files of the certificate that routers are shown; also `turnout --cert`, `--key` |
| `TURNOUT_API_KEY` or `TURNOUT_API_KEY_FILE` | an API key or JWT ([access](access.md)); also `turnout --api-key-file` |

What worker processes inherit of the runtime's environment: docs/isolation.md.
"""

KEYS_INTRODUCTION = """## Keys in etcd

Values are JSON objects below the prefix (`/turnout/models/digits`). They are checked strictly: an unknown field, `"64"`
where a number belongs, or percents over 100 are refused with the field's name, the last good value stays in effect, and
`status/` says which key was refused and why. Names of models and views have letters, digits, `.`, `_` and `-`, at most
128, the first a letter or digit; versions are decimal numbers without leading zeros, written as text.

A *source of a key* (`sticky_by`, `entity`) is `NAME`, a request parameter; `header:NAME`, an HTTP header or gRPC
metadata; or `input:NAME`, an input: its first element for `sticky_by`, an element a row for `entity`.
"""

if __name__ == "__main__":
    PAGE.write_text(page())
