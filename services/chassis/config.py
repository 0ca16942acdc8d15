"""Process settings from the environment and an optional file; everything wrong is said at once, at start."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from services.chassis.listening import split_address
from services.core import keys


def _checked(address: str) -> str:
    split_address(address)
    return address


Address = Annotated[str, AfterValidator(_checked)]  # host:port; port 0 = any free one


class BadConfigError(Exception):
    """Settings that cannot start a service; the message has one line a fault."""


class Config(BaseModel):
    """Base of every service's settings: frozen; a field FOO of prefix TURNOUT_X_ is read from TURNOUT_X_FOO."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def load(cls, prefix: str, environ: Mapping[str, str] = os.environ) -> Self:
        """Settings from TURNOUT_CONFIG (a TOML file; TURNOUT_ROUTER_ is table [router]) and from the environment.

        The environment wins. Raises BadConfigError listing every unknown, missing or ill-typed setting.
        """
        values = cls._from_file(prefix, environ)
        known = {f"{prefix}{name.upper()}": name for name in cls.model_fields}
        faults = [
            f"{name}: unknown setting; known are {', '.join(sorted(known))}"
            for name in environ
            if name.startswith(prefix) and name not in known
        ]
        values |= {known[name]: value for name, value in environ.items() if name in known}
        try:
            config = cls.model_validate(values)
        except ValidationError as error:
            faults += [f"{prefix}{'_'.join(map(str, f['loc'])).upper()}: {f['msg']}" for f in error.errors()]
            raise BadConfigError("\n".join(faults)) from None
        if faults:
            raise BadConfigError("\n".join(faults))
        return config

    @classmethod
    def _from_file(cls, prefix: str, environ: Mapping[str, str]) -> dict[str, Any]:
        path = environ.get("TURNOUT_CONFIG")
        if not path:
            return {}
        table = prefix.removeprefix("TURNOUT_").removesuffix("_").lower()
        try:
            values = tomllib.loads(Path(path).read_text()).get(table, {})
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise BadConfigError(f"TURNOUT_CONFIG={path}: {error}") from None
        if not isinstance(values, dict):
            raise BadConfigError(f"TURNOUT_CONFIG={path}: {table} is not a table")
        return values


class ServiceConfig(Config):
    """What every service is told."""

    etcd_endpoints: str = "127.0.0.1:2379"  # comma-separated host:port
    etcd_prefix: str = keys.PREFIX
    etcd_user: str = ""
    etcd_password: str = Field(default="", repr=False)
    instance: str = ""  # name of this process in services/; empty = made from host and pid
    data_dir: Path = Path(".turnout")  # snapshots and sockets
    metrics_address: Address = "127.0.0.1:0"  # host:port of /metrics and health
    drain_s: float = Field(default=10, ge=0)
    log_level: Literal["debug", "info", "warning", "error", "critical"] = "info"
    otlp_endpoint: str = ""  # host:port of an OTLP gRPC collector; empty = no export
    parent_death: bool = False  # stop when the parent process dies
