"""Where things lie in etcd, below the prefix."""

from typing import NamedTuple

PREFIX = "/turnout/"  # unless settings say otherwise
MODELS = "models/"
ROUTES = "routes/"
CALLERS = "callers/"
FEATURE_VIEWS = "feature_views/"
SETTINGS = "settings/"
ENDPOINTS = "endpoints/"
SERVICES = "services/"
STATUS = "status/"


class EndpointKey(NamedTuple):
    model: str
    version: str
    replica: str


def endpoint(model: str, version: str, replica: str) -> str:
    return f"{ENDPOINTS}{model}/{version}/{replica}"


def parse_endpoint(key: str) -> EndpointKey:
    """The parts of endpoints/MODEL/VERSION/REPLICA. Raises ValueError for any other shape."""
    parts = key.removeprefix(ENDPOINTS).split("/")
    if not key.startswith(ENDPOINTS) or len(parts) != 3 or not all(parts):
        raise ValueError(f"{key}: expected endpoints/MODEL/VERSION/REPLICA")
    return EndpointKey(*parts)


def service(name: str, instance: str) -> str:
    return f"{SERVICES}{name}/{instance}"


def status(name: str, instance: str, what: str) -> str:
    return f"{STATUS}{name}/{instance}/{what}"
