"""Process settings from the environment and an optional file; everything wrong is said at once, at start."""

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError

from services.chassis.listening import split_address
from services.chassis.tls.settings import EtcdTls, LinkTls, ListenerTls
from services.core import keys


def _checked(address: str) -> str:
    split_address(address)
    return address


def _checked_if_given(address: str) -> str:
    return _checked(address) if address else ""


Address = Annotated[str, AfterValidator(_checked)]  # host:port; port 0 = any free one
OptionalAddress = Annotated[str, AfterValidator(_checked_if_given)]  # likewise; empty = not listened on


class BadConfigError(Exception):
    """Settings that cannot start a service; the message has one line a fault."""


class Config(BaseModel):
    """Base of every service's settings: frozen; a field FOO of prefix TURNOUT_X_ is read from TURNOUT_X_FOO.

    A field of a group FOO is read from TURNOUT_X_FOO_NAME.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def load(cls, prefix: str, environ: Mapping[str, str] = os.environ) -> Self:
        """Settings from TURNOUT_CONFIG (a TOML file; TURNOUT_ROUTER_ is table [router]) and from the environment.

        The environment wins. Raises BadConfigError listing every unknown, missing or ill-typed setting.
        """
        values = cls._from_file(prefix, environ)
        known = dict(variables(cls, prefix))
        faults = [
            f"{name}: unknown setting; known are {', '.join(sorted(known))}"
            for name in environ
            if name.startswith(prefix) and name not in known
        ]
        for name, value in environ.items():
            if name in known:
                _put(values, known[name], value)
        try:
            config = cls.model_validate(values)
        except ValidationError as error:
            faults += [f"{prefix}{'_'.join(map(str, f['loc'])).upper()}: {_said(f['msg'])}" for f in error.errors()]
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


def variables(config: type[BaseModel], prefix: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each variable that sets a field, and the names that lead to the field."""
    for name, field in config.model_fields.items():
        variable, group = f"{prefix}{name.upper()}", field.annotation
        if isinstance(group, type) and issubclass(group, BaseModel):
            yield from ((each, (name, *path)) for each, path in variables(group, f"{variable}_"))
        else:
            yield variable, (name,)


def _put(values: dict[str, Any], path: tuple[str, ...], value: str) -> None:
    for name in path[:-1]:
        inner = values.get(name)
        values[name] = values = dict(inner) if isinstance(inner, dict) else {}
    values[path[-1]] = value


def _said(message: str) -> str:
    """Pydantic's words, less its name for the exception that was raised."""
    return message.removeprefix("Value error, ")


class ServiceConfig(Config):
    """What every service is told."""

    etcd_endpoints: str = "127.0.0.1:2379"  # comma-separated host:port
    etcd_prefix: str = keys.PREFIX
    etcd_user: str = ""
    etcd_password: SecretStr = SecretStr("")
    etcd_password_file: Path | None = None  # whose first line is the password
    etcd_tls: EtcdTls = EtcdTls()
    instance: str = ""  # name of this process in services/; empty = made from host and pid
    data_dir: Path = Path(".turnout")  # snapshots and sockets
    link_tls: LinkTls = LinkTls()
    metrics_address: Address = "127.0.0.1:0"  # host:port of /metrics and health
    metrics_tls: ListenerTls = ListenerTls()
    certificate_check_s: float = Field(default=2, ge=0.05)  # between two looks at certificate files, for new ones
    drain_s: float = Field(default=10, ge=0)
    log_level: Literal["debug", "info", "warning", "error", "critical"] = "info"
    otlp_endpoint: str = ""  # host:port of an OTLP gRPC collector; empty = no export
    parent_death: bool = False  # stop when the parent process dies

    def password(self) -> str:
        """Of etcd's user. Raises BadConfigError."""
        path = self.etcd_password_file
        if path is None:
            return self.etcd_password.get_secret_value()
        if self.etcd_password.get_secret_value():
            raise BadConfigError("ETCD_PASSWORD and ETCD_PASSWORD_FILE are both set: set one")
        try:
            return path.read_text().partition("\n")[0]
        except (OSError, ValueError) as error:
            raise BadConfigError(f"ETCD_PASSWORD_FILE: {path} cannot be read: {_cause(error)}") from None


def _cause(error: Exception) -> str:
    """Never what was read."""
    return (error.strerror if isinstance(error, OSError) else None) or "it is no text"
