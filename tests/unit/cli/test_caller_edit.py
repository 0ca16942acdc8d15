from datetime import UTC, datetime, timedelta

import pytest

from services.cli.caller_edit import NewCaller, in_words, key_id_of, made, with_key, without_keys
from services.cli.errors import CliError
from services.core import api_key
from services.core.caller_spec import CallerSpec

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ONE, OTHER = api_key.make(bytes(range(42))), api_key.make(bytes(range(1, 43)))


def test_what_is_not_given_is_what_a_caller_has_anyway() -> None:
    assert made(NewCaller()) == CallerSpec()
    assert in_words(CallerSpec()) == "predict on *"


def test_what_is_given_is_what_the_caller_may_and_is_known_by() -> None:
    caller = made(
        NewCaller(
            roles=("predict", "manage"),
            models=("shop-*",),
            subjects=("svc-shop",),
            certificates=("CN=shop,O=Acme", "URI:spiffe://acme/shop"),
            requests_per_s=100,
            max_concurrency=8,
        )
    )

    assert in_words(caller) == "predict, manage on shop-*; requests_per_s 100; max_concurrency 8"
    assert [each.subject for each in caller.tokens] == ["svc-shop"]
    assert [(each.subject, each.san) for each in caller.certificates] == [
        ("CN=shop,O=Acme", None),
        (None, "URI:spiffe://acme/shop"),
    ]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (NewCaller(roles=("god",)), "roles.0: Input should be 'predict', 'manage', 'read-metrics' or 'internal'"),
        (NewCaller(models=("a b",)), "models.0: 'a b' names no models"),
        (NewCaller(certificates=("shop",)), "certificates.0.san: 'shop' is no alternative name"),
        (NewCaller(max_concurrency=0), "limits.max_concurrency: Input should be greater than or equal to 1"),
    ],
)
def test_what_is_no_caller_is_said_by_field(wanted: NewCaller, message: str) -> None:
    with pytest.raises(CliError, match="that is no caller") as raised:
        made(wanted)

    assert message in str(raised.value)


def test_keys_come_beside_those_of_before_and_go_one_by_one() -> None:
    caller = with_key(with_key(CallerSpec(), ONE, NOW, None), OTHER, NOW, NOW + timedelta(days=1))

    assert set(caller.keys) == {ONE.id, OTHER.id}
    assert api_key.matches(ONE, caller.keys[ONE.id].hmac_sha256)
    assert (caller.keys[ONE.id].expires, caller.keys[OTHER.id].expires) == (None, NOW + timedelta(days=1))
    assert CallerSpec.parse(caller.dump()) == caller
    assert ONE.secret not in caller.dump().decode()
    assert set(without_keys("shop", caller, [ONE.text()]).keys) == {OTHER.id}


def test_a_key_that_is_not_the_callers_is_named_without_its_secret() -> None:
    with pytest.raises(CliError) as raised:
        without_keys("shop", CallerSpec(), [ONE.text()])

    assert str(raised.value) == f"shop has no key {ONE.id}; it has none"
    assert key_id_of(f"tk_{ONE.id}.cut-off") == key_id_of(ONE.id) == ONE.id
