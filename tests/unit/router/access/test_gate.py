import json
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from services.core.errors import NotFoundError, PermissionDeniedError, QuotaError, ServingError, UnauthenticatedError
from services.core.roles import ROLES
from services.router.access.callers import Callers
from services.router.access.credentials import Authenticator
from services.router.access.gate import Access
from services.router.desired import Desired
from services.router.flight import Flight
from services.router.inference import NO_PARAMETERS, Inference
from services.router.metrics import RouterMetrics
from services.router.table import Table
from tests.support.credentials import new_key, stored

Headers = dict[str, str | bytes]


class Gate:
    """A gate before models, and one key for each caller."""

    def __init__(self, *, is_open: bool = False, **callers: dict[str, Any]) -> None:
        self.keys = {name: new_key() for name in callers}
        self.desired, self.refused = Desired(), list[tuple[str, str]]()
        self.table = Table(RouterMetrics(CollectorRegistry()).follow)
        known = Callers()
        refused = lambda caller, reason: self.refused.append((caller, reason))  # noqa: E731
        self.access = Access(self.table, known, Authenticator(known, None, refused), refused, is_open=is_open)
        self._revision = 0
        self.models(closed={}, opened={"access": {"anonymous": True}}, shut={"access": {"anonymous": False}})
        self.callers(**callers)

    def models(self, **specs: dict[str, Any]) -> None:
        self._put("models", specs)
        self.table.rebuild(self.desired, {})

    def callers(self, **specs: dict[str, Any]) -> None:
        self._put("callers", {name: {"keys": stored(self.keys[name]), **spec} for name, spec in specs.items()})
        assert self.desired.refused == {}
        self.access.follow(self.desired.callers)

    def _put(self, folder: str, specs: dict[str, Any]) -> None:
        self._revision += 1
        changes = [(f"{folder}/{name}", json.dumps(spec).encode(), self._revision) for name, spec in specs.items()]
        self.desired.apply(changes)

    def headers(self, caller: str) -> Headers:
        return {"x-api-key": self.keys[caller].text()} if caller else {}

    def infer(self, caller: str, model: str, headers: Headers | None = None) -> Flight:
        flight = Flight(cast("Any", None), cast("Any", None), 1, {**self.headers(caller), **(headers or {})}, 0)
        flight.inference = Inference(model, "", "", NO_PARAMETERS, (), (), 10)
        flight.entry = self.access.admit(flight, flight.inference)
        return flight

    def outcome(self, caller: str, model: str, role: Any = None) -> str:
        """What comes of an inference, or of another call that needs `role`."""
        try:
            if role is None:
                self.infer(caller, model)
            else:
                self.access.require(role, model, self.headers(caller), "", b"")
        except ServingError as error:
            return type(error).__name__.removesuffix("Error")
        return "ok"


@pytest.mark.parametrize(
    ("is_open", "outcomes"),
    [
        (True, {"closed": "ok", "opened": "ok", "shut": "Unauthenticated", "nowhere": "NotFound"}),
        (False, {"closed": "Unauthenticated", "opened": "ok", "shut": "Unauthenticated", "nowhere": "Unauthenticated"}),
    ],
)
def test_strangers_see_what_is_open(is_open: bool, outcomes: dict[str, str]) -> None:  # noqa: FBT001
    gate = Gate(is_open=is_open, shop={})

    assert {model: gate.outcome("", model) for model in outcomes} == outcomes
    assert gate.outcome("", "shut", "predict") == "Unauthenticated"
    assert [gate.outcome("", "", role) for role in ROLES] == ["ok" if is_open else "Unauthenticated"] * len(ROLES)
    assert {reason for _, reason in gate.refused} == {"anonymous"}


def test_a_caller_has_its_roles_for_its_models() -> None:
    gate = Gate(
        is_open=True, shop={"models": ["closed"]}, ops={"roles": ["manage", "read-metrics"]}, off={"enabled": False}
    )

    said = {
        (caller, role): gate.outcome(caller, "closed", role)
        for caller in ("shop", "ops", "off")
        for role in ("predict", "manage", "read-metrics")
    }
    allowed = {pair for pair, outcome in said.items() if outcome == "ok"}
    assert allowed == {("shop", "predict"), ("ops", "manage"), ("ops", "read-metrics")}
    assert set(said.values()) == {"ok", "PermissionDenied"}
    assert gate.outcome("shop", "opened") == gate.outcome("shop", "nowhere") == "PermissionDenied"
    assert gate.outcome("ops", "nowhere", "manage") == "ok"
    assert {reason for _, reason in gate.refused} == {"role", "model", "disabled"}


def test_what_is_about_all_models_is_not_for_who_has_some() -> None:
    roles = ["manage", "read-metrics", "predict"]
    gate = Gate(is_open=True, some={"roles": roles, "models": ["c*"]}, all={"roles": roles})

    assert [gate.outcome("some", "closed", role) for role in roles] == ["ok"] * 3
    assert [gate.outcome("all", "", role) for role in roles] == ["ok"] * 3
    assert [gate.outcome("some", "", role) for role in roles] == ["PermissionDenied", "PermissionDenied", "ok"]
    assert gate.access.require("manage", "", gate.headers("some"), "", b"", in_part=True)


def test_what_was_allowed_is_asked_again_when_caller_or_model_change() -> None:
    gate = Gate(shop={})
    assert [gate.outcome("shop", "closed") for _ in range(3)] == ["ok"] * 3

    gate.models(closed={"access": {"callers": {"others": ["predict"]}}})
    assert gate.outcome("shop", "closed") == "PermissionDenied"
    gate.models(closed={})
    assert gate.outcome("shop", "closed") == "ok"
    gate.callers(shop={"models": []})
    assert gate.outcome("shop", "closed") == "PermissionDenied"


def test_a_message_names_only_what_its_reader_may_ask() -> None:
    gate = Gate(shop={"models": ["op*", "x"]})

    with pytest.raises(NotFoundError, match=r"model 'x' is unknown; known are opened$"):
        gate.infer("shop", "x")
    with pytest.raises(NotFoundError, match=r"model 'x' is unknown; known are opened$"):
        gate.access.require("predict", "x", gate.headers("shop"), "", b"")
    with pytest.raises(PermissionDeniedError, match=r"caller shop may not call model closed$"):
        gate.infer("shop", "closed")
    with pytest.raises(UnauthenticatedError, match="model nowhere takes no anonymous callers"):
        gate.infer("", "nowhere")


def test_what_is_refused_holds_no_place() -> None:
    gate = Gate(shop={"limits": {"max_concurrency": 1, "requests_per_s": 0.001, "burst_s": 2000}})
    first = gate.infer("shop", "closed")
    with pytest.raises(QuotaError, match="requests in flight"):
        gate.infer("shop", "closed")
    assert first.held is not None
    first.held.in_flight -= 1

    second = gate.infer("shop", "closed")
    assert second.held is first.held
    second.held.in_flight -= 1
    with pytest.raises(QuotaError, match="requests/s"):
        gate.infer("shop", "closed")
    assert first.held.in_flight == 0
    assert [reason for _, reason in gate.refused] == ["concurrency", "requests_per_s"]


def test_only_trusted_callers_say_what_the_mesh_says() -> None:
    gate = Gate(is_open=True, shop={}, mesh={"roles": ["predict", "internal"]})
    match = [{"header": "x-turnout-beta", "equals": "1", "version": "2"}]
    gate.desired.apply([("routes/closed", json.dumps({"stable": "1", "match": match}).encode(), 9)])
    gate.table.rebuild(gate.desired, {})

    kept = {
        caller: "x-turnout-beta" in gate.infer(caller, "closed", {"x-turnout-beta": "1", "x-beta": "1"}).headers
        for caller in ("", "shop", "mesh")
    }
    assert kept == {"": False, "shop": False, "mesh": True}
    assert gate.infer("shop", "closed", {"x-turnout-beta": "1", "x-beta": "1"}).headers["x-beta"] == "1"
