from typing import Any

import pytest

from services.core.caller_spec import CallerSpec
from services.core.errors import QuotaError
from services.core.model_spec import Access
from services.router.access.callers import Callers, taken
from tests.support.credentials import new_key, stored


def spec(**fields: Any) -> CallerSpec:
    return CallerSpec.model_validate(fields)


def access(**fields: Any) -> Access:
    return Access.model_validate(fields)


def test_an_edit_changes_what_a_caller_may_and_forgets_nothing_it_has_used() -> None:
    callers, key = Callers(), new_key()
    slow = {"requests_per_s": 1, "max_concurrency": 2}
    callers.follow({"shop": spec(keys=stored(key), limits=slow)})
    caller = callers.keys[key.id].caller
    before = caller.rights
    caller.take_request(0)
    caller.take_place()

    callers.follow({"shop": spec(keys=stored(key), limits=slow, models=["digits"])})

    assert callers.keys[key.id].caller is caller
    assert (before.allow("predict", "iris", None), caller.rights.allow("predict", "iris", None)) == (True, False)
    assert caller.in_flight == 1
    with pytest.raises(QuotaError, match="caller shop is over its limit of 1 requests/s"):
        caller.take_request(0)


def test_who_is_no_caller_any_more_is_not_found() -> None:
    callers, key = Callers(), new_key()
    callers.follow({"shop": spec(keys=stored(key), tokens=[{"subject": "s"}], certificates=[{"subject": "CN=s"}])})
    assert callers.of_token("s", {})
    assert callers.of_certificate("CN=s", ())

    callers.follow({})

    assert (len(callers), callers.keys, callers.of_token("s", {}), callers.of_certificate("CN=s", ())) == (
        0,
        {},
        None,
        None,
    )


def test_each_router_of_several_enforces_its_share() -> None:
    callers, key = Callers(), new_key()
    callers.follow({"shop": spec(keys=stored(key), limits={"requests_per_s": 4, "max_concurrency": 4})})
    caller = callers.keys[key.id].caller

    callers.share_with(2)

    for _ in range(2):
        caller.take_request(0)
        caller.take_place()
    with pytest.raises(QuotaError, match="over its limit of 4 requests/s, shared by 2 routers"):
        caller.take_request(0)
    with pytest.raises(
        QuotaError, match=r"has 2 requests in flight, the most it may \(4 in flight, shared by 2 routers\)"
    ):
        caller.take_place()
    callers.share_with(0)
    caller.take_place()


def test_a_token_is_its_subjects_then_its_claims() -> None:
    callers = Callers()
    callers.follow(
        {
            "claimed": spec(tokens=[{"claims": {"groups": "shop"}}]),
            "named": spec(tokens=[{"subject": "s", "claims": {"env": "prod"}}]),
        }
    )

    def owner(subject: str, **claims: Any) -> str:
        found = callers.of_token(subject, claims)
        return found.name if found else ""

    assert owner("s", env="prod", groups=["shop"]) == "named"
    assert owner("s", env="test") == ""
    assert owner("x", groups=["a", "shop"]) == owner("", groups="shop") == "claimed"
    assert owner("x", groups={"shop": 1}) == owner("x") == ""


def test_a_certificate_is_its_subjects_or_one_of_its_names() -> None:
    callers = Callers()
    callers.follow({"a": spec(certificates=[{"subject": "CN=a"}]), "b": spec(certificates=[{"san": "DNS:b.svc"}])})

    found = [callers.of_certificate(*names) for names in (("CN=a", ()), ("CN=x", ("DNS:y", "DNS:b.svc")), ("", ()))]
    assert [caller.name if caller else "" for caller in found] == ["a", "b", ""]


@pytest.mark.parametrize(
    ("narrowed", "allowed"),
    [
        (None, True),
        ({"shop": ["predict"]}, True),
        ({"s*": ["predict", "manage"]}, True),
        ({"shop": ["manage"]}, False),
        ({"other": ["predict"]}, False),
        ({}, False),
    ],
)
def test_a_model_may_narrow_who_does_what(narrowed: dict[str, Any] | None, allowed: bool) -> None:  # noqa: FBT001
    callers, key = Callers(), new_key()
    callers.follow({"shop": spec(keys=stored(key))})

    assert callers.keys[key.id].caller.rights.allow("predict", "m", access(callers=narrowed)) is allowed


def test_what_proves_one_caller_cannot_prove_another() -> None:
    key = new_key()
    held = {"shop": spec(keys=stored(key), tokens=[{"subject": "s"}], certificates=[{"san": "DNS:s"}])}

    assert taken("shop", held["shop"], held) is None
    assert taken("thief", spec(keys=stored(key)), held) == f"keys: {key.id} is a key of caller shop"
    assert taken("thief", spec(tokens=[{"subject": "s"}]), held) == "tokens: caller shop is known by the same"
    assert taken("thief", spec(certificates=[{"san": "DNS:s"}]), held) == "certificates: DNS:s is caller shop's"
    assert taken("other", spec(keys=stored(new_key())), held) is None
