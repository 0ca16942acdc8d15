"""The gate: every call of every protocol passes `admit` (inference) or `require` (all else)."""

from collections.abc import Mapping
from functools import partial
from time import perf_counter_ns

from services.chassis.http import HttpRequest
from services.core.caller_spec import CallerSpec
from services.core.errors import (
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    QuotaError,
    ServingError,
    UnauthenticatedError,
    UnavailableError,
)
from services.core.roles import Role
from services.router.access import reasons
from services.router.access.caller import Caller
from services.router.access.callers import Callers
from services.router.access.credentials import Authenticator, Headers
from services.router.access.metering import meter
from services.router.access.refusals import Refused
from services.router.flight import Flight
from services.router.inference import Inference
from services.router.table import Entry, Table

_MOST_RIGHTS = 4096  # remembered of one model; they are forgotten when there would be more
_HOW = "send `authorization: Bearer KEY` or `x-api-key: KEY`"


class Access:
    """Who may do what. `is_open`: what anybody may do where nothing else is said, which suits a loopback only."""

    def __init__(
        self, table: Table, callers: Callers, authenticator: Authenticator, refused: Refused, *, is_open: bool
    ) -> None:
        self._table = table
        self._callers = callers
        self._authenticator = authenticator
        self._refused = refused
        self.is_open = is_open

    # -- inference

    def admit(self, flight: Flight, inference: Inference) -> Entry:
        """The model of a request that may run; counts it in flight for its caller, until `Flight.held` is let go."""
        now_ns = flight.mark_ns
        caller = flight.caller
        if caller is None:
            caller = self._authenticator.identify(flight.headers, flight.peer, flight.certificate, now_ns)
            flight.caller = caller
        model = inference.model
        entry = self._table.entries().get(model)
        if caller is None:
            if entry is None or not entry.is_open(by_default=self.is_open):
                self._check_anonymous(model, "predict")
        else:
            if entry is None or caller.rights not in entry.allowed:
                self._check(caller, "predict", model)
            self._take(caller, now_ns)
            flight.held = caller
        if entry is None:
            raise self._unknown(model, caller)
        if inference.version and not entry.spec.access.explicit_versions:
            raise InvalidRequestError(f"model {model} lets the route choose the version: leave the version empty")
        if entry.internal_names and not self._is_internal(caller):
            _strip(flight, entry.internal_names)
        return entry

    def meter(self, flight: Flight) -> None:
        """Hold a checked request against what only now is known of it: its rows, its priority. Raises QuotaError."""
        caller = flight.held
        if caller is None or not caller.is_metered:
            return
        try:
            meter(flight, caller)
        except QuotaError:
            self._refused(caller.name, reasons.ROWS)
            raise

    # -- what it goes by

    def follow(self, callers: Mapping[str, CallerSpec]) -> None:
        """Go by these callers from now on: nothing that was verified before counts."""
        self._callers.follow(callers)
        self._authenticator.forget()

    def share_with(self, routers: int) -> None:
        """Divide callers' limits by so many live routers."""
        self._callers.share_with(routers)

    # -- everything else

    def identify(self, headers: Headers, peer: str, certificate: bytes) -> Caller | None:
        """Who calls. Raises UnauthenticatedError for credentials that are wrong."""
        return self._authenticator.identify(headers, peer, certificate, perf_counter_ns())

    def require(
        self, role: Role, model: str, headers: Headers, peer: str, certificate: bytes, *, in_part: bool = False
    ) -> Caller | None:
        """Who calls, who may do `role` with `model`, or with all of them where none is named. Raises ServingError.

        `in_part`: of all of them the handler does, or shows, only what its caller may.
        """
        caller = self.identify(headers, peer, certificate)
        if caller is None:
            entry = self._table.entries().get(model)
            if role != "predict" or entry is None or not entry.is_open(by_default=self.is_open):
                self._check_anonymous(model, role)
            return None
        self._check(caller, role, model)
        if not model and not in_part and role != "predict" and not caller.rights.spec.covers_all():
            raise self._denied(
                caller, reasons.MODEL, f"caller {caller.name} may {_DO[role]} some models only, and this is about all"
            )
        if model and role != "manage" and model not in self._table.entries():
            raise self._unknown(model, caller)  # naming what this caller may see, as nobody behind the gate could
        return caller

    def guard(self, request: HttpRequest, role: Role, names: Mapping[str, str]) -> None:
        """Ask for a request of REST whose path names its model. Raises ServingError."""
        caller = self.require(role, names.get("model", ""), request.headers, request.peer, request.certificate)
        request.caller, request.may = caller, partial(self.may, caller)

    def guard_metrics(self, headers: Headers, peer: str) -> None:
        """Ask for a scrape of /metrics. Raises ServingError."""
        self.require("read-metrics", "", headers, peer, b"")

    def may(self, caller: Caller | None, role: Role, model: str) -> bool:
        """Whether a list of models should show `model` to the caller."""
        entry = self._table.entries().get(model)
        if caller is None:
            return self.is_open if entry is None else entry.is_open(by_default=self.is_open)
        return caller.rights.allow(role, model, entry.spec.access if entry else None)

    # -- inside

    def _check_anonymous(self, model: str, role: Role) -> None:
        entry = self._table.entries().get(model)
        if self.is_open and (entry is None or role != "predict"):
            return  # nobody is kept out here; a model that is unknown is said to be so
        self._refused("", reasons.ANONYMOUS)
        what = f"model {model[:128]}" if model and role == "predict" else f"this ({role})"
        raise UnauthenticatedError(f"{what} takes no anonymous callers: {_HOW}")

    def _check(self, caller: Caller, role: Role, model: str) -> None:
        rights, entry = caller.rights, self._table.entries().get(model)
        if not rights.spec.enabled:
            raise self._denied(caller, reasons.DISABLED, f"caller {caller.name} is disabled")
        if not rights.has(role):
            has = ", ".join(rights.spec.roles) or "none"
            raise self._denied(caller, reasons.ROLE, f"caller {caller.name} has not the role {role}; it has: {has}")
        if not model:
            return
        if not rights.allow(role, model, entry.spec.access if entry else None):
            raise self._denied(caller, reasons.MODEL, f"caller {caller.name} may not {_DO[role]} model {model[:128]}")
        if entry is not None and role == "predict":
            if len(entry.allowed) >= _MOST_RIGHTS:
                entry.allowed.clear()
            entry.allowed.add(rights)

    def _denied(self, caller: Caller, reason: str, message: str) -> ServingError:
        self._refused(caller.name, reason)
        return PermissionDeniedError(message)

    def _take(self, caller: Caller, now_ns: int) -> None:
        """Count one request of the caller, in flight from now on. Raises QuotaError."""
        try:
            caller.take_place()
        except QuotaError:
            self._refused(caller.name, reasons.CONCURRENCY)
            raise
        try:
            caller.take_request(now_ns)
        except QuotaError:
            caller.in_flight -= 1
            self._refused(caller.name, reasons.REQUESTS)
            raise

    def _unknown(self, model: str, caller: Caller | None) -> ServingError:
        if reason := self._table.closed():
            return UnavailableError(f"this router takes no requests: {reason}")
        seen = [name for name in sorted(self._table.entries()) if self.may(caller, "predict", name)]
        return NotFoundError(f"model {model[:128]!r} is unknown; known are {', '.join(seen) or 'none'}")

    @staticmethod
    def _is_internal(caller: Caller | None) -> bool:
        return caller is not None and caller.rights.has("internal")


_DO: Mapping[Role, str] = {"predict": "call", "manage": "manage", "read-metrics": "read metrics of", "internal": "use"}


def _strip(flight: Flight, names: frozenset[str]) -> None:
    """Drop what only the mesh itself, and callers it trusts, may say."""
    flight.headers = {name: value for name, value in flight.headers.items() if name not in names}
    inference = flight.inference
    if inference.parameters.keys() & names:
        kept = {name: value for name, value in inference.parameters.items() if name not in names}
        flight.inference = inference._replace(parameters=kept)
