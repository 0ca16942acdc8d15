"""What the routes of management and of shared memory say of themselves in the API's description."""

from services.chassis.openapi import About, Named, Schema
from services.router.rest.about import ANYTHING, FLAG, TEXT, TIMEOUT, WHOLE, made_of

_OBJECT: Schema = {"type": "object"}
_ROW = Named(
    "RepositoryVersion", made_of("name version state reason", name=TEXT, version=TEXT, state=TEXT, reason=TEXT)
)
_TRACES: Schema = {"type": "object", "additionalProperties": {"type": ["string", "array"]}}
_LOGS: Schema = {"type": "object", "additionalProperties": {"type": ["string", "boolean", "integer"]}}
_ROUTE = Named("StoredRoute", made_of("revision", revision=WHOLE, route=_OBJECT, fault=TEXT, value=TEXT))
_REGION = Named("Region", made_of("name key offset byte_size", name=TEXT, key=TEXT, offset=WHOLE, byte_size=WHOLE))
_REVISION = {"If-Match": "The revision that the change builds on, as in ETag; another one is refused."}

INDEX = About(
    "Every version of every model: its state, and why.",
    "repository",
    {"type": "array", "items": _ROW},
    body=made_of("", ready=FLAG),
    body_is_needed=False,
)
LOAD = About(
    "Load a model, or load it anew; answered when every pod has it ready.",
    "repository",
    made_of("name load", name=TEXT, load=FLAG),
    body=made_of("", parameters=_OBJECT),
    body_is_needed=False,
    headers=TIMEOUT,
    details="Parameters: config, JSON as text, overrides fields of models/MODEL; file:VERSION/PATH is base64.",
)
UNLOAD = About(
    "Have every pod let go of a model.",
    "repository",
    made_of("name unload", name=TEXT, unload=FLAG),
    body=made_of("", parameters=_OBJECT),
    body_is_needed=False,
    headers=TIMEOUT,
)
TRACES = About("Which requests are kept as traces.", "settings", _TRACES)
SET_TRACES = About(
    "Change which requests are kept as traces; null falls back to the wider setting.",
    "settings",
    _TRACES,
    body={"type": "object", "additionalProperties": ANYTHING},
    body_is_needed=False,
)
LOGS = About("What routers say of themselves.", "settings", _LOGS)
SET_LOGS = About(
    "Change what routers say of themselves.",
    "settings",
    _LOGS,
    body={"type": "object", "additionalProperties": ANYTHING},
    body_is_needed=False,
)
ROUTES = About(
    "Every model's route.", "routes", made_of("routes", routes={"type": "object", "additionalProperties": _ROUTE})
)
ROUTE = About("A model's route, and its revision.", "routes", _ROUTE)
PUT_ROUTE = About(
    "Write a model's route; answered once every router has judged it.",
    "routes",
    made_of("revision route routers", revision=WHOLE, route=_OBJECT, routers=_OBJECT),
    body=_OBJECT,
    headers={**_REVISION, "If-None-Match": "* = only if there is none."},
)
DELETE_ROUTE = About(
    "Remove a model's route.", "routes", made_of("model deleted", model=TEXT, deleted=FLAG), headers=_REVISION
)
REGIONS = About("Shared memory that is registered.", "shared memory", {"type": "array", "items": _REGION})
REGISTER = About(
    "Name a part of a shared memory object, for tensors.",
    "shared memory",
    body=made_of("key byte_size", key=TEXT, offset=WHOLE, byte_size=WHOLE),
)
UNREGISTER = About("Forget a region, or all of them.", "shared memory")
CUDA = About("Not offered: this router uses no GPU.", "shared memory", answer=_OBJECT)
