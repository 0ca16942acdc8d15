import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cli.errors import CliError
from services.cli.route_edit import Edit, edited, in_words, parse_shares
from services.core.route_spec import RouteSpec
from services.core.spec import BadValueError

ROUTE = RouteSpec.model_validate(
    {"stable": "1", "canary": {"2": 10, "4": 5}, "shadow": {"3": 100}, "sticky_by": "user_id", "labels": {"best": "1"}}
)


def starts(route: RouteSpec) -> dict[str, float]:
    return {each.version: each.at for each in route.canary}


def percents(route: RouteSpec) -> dict[str, float]:
    return {each.version: each.percent for each in route.canary}


def test_a_canary_that_grows_stays_where_it_began() -> None:
    route = edited(ROUTE, Edit(canary={"4": 25}))

    assert starts(route) == starts(ROUTE)
    assert percents(route) == {"2": 10, "4": 25}


@given(st.lists(st.tuples(st.sampled_from("23456789"), st.integers(0, 12)), max_size=20))
def test_no_sequence_of_changes_moves_a_canary(changes: list[tuple[str, int]]) -> None:
    route = RouteSpec(stable="1")
    first: dict[str, float] = {}
    for version, percent in changes:
        route = edited(route, Edit(canary={version: percent}))
        first = {**starts(route), **first}

    assert starts(route) == first


@given(st.integers(1, 8))
def test_new_canaries_do_not_begin_inside_others(count: int) -> None:
    route = RouteSpec(stable="1")
    for version in range(2, 2 + count):
        route = edited(route, Edit(canary={str(version): 10}))

    arcs = sorted((each.at, each.at + each.percent) for each in route.canary)

    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(arcs))


def test_what_is_not_named_stays() -> None:
    route = edited(ROUTE, Edit(canary={"2": 20}))

    assert (route.stable, route.shadow, route.sticky_by, route.labels) == ("1", {"3": 100}, "user_id", {"best": "1"})


def test_author_and_reason_are_those_of_this_change() -> None:
    before = edited(ROUTE, Edit(author="ana", reason="new features"))

    after = edited(before, Edit(author="bo"))

    assert (after.author, after.reason) == ("bo", "")


def test_a_canary_that_becomes_stable_is_no_canary_any_more() -> None:
    assert starts(edited(ROUTE, Edit(stable="2"))) == {"4": 50.0}


def test_a_canary_of_zero_percent_keeps_its_place() -> None:
    nobody = edited(ROUTE, Edit(canary={"2": 0}))

    assert starts(edited(nobody, Edit(canary={"2": 10}))) == starts(ROUTE)


def test_a_dropped_version_is_neither_canary_nor_shadow() -> None:
    route = edited(ROUTE, Edit(drop=("2", "3")))

    assert (starts(route), route.shadow) == ({"4": 50.0}, {})


def test_a_shadow_of_zero_percent_ends() -> None:
    assert edited(ROUTE, Edit(shadow={"3": 0, "5": 50})).shadow == {"5": 50}


def test_the_written_value_has_the_long_form() -> None:
    assert b'"canary":[{"version":"2"' in edited(ROUTE, Edit(canary={"2": 11})).dump()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Edit(canary={"2": 70, "4": 40}), "over 100"),
        (Edit(canary={"1": 5}), "version 1 is stable"),
        (Edit(drop=("2",), canary={"2": 5}), "both set and dropped"),
    ],
)
def test_what_is_no_route_is_refused_with_the_reason(edit: Edit, message: str) -> None:
    with pytest.raises(CliError, match=message):
        edited(ROUTE, edit)


def test_the_first_route_needs_a_stable_version() -> None:
    with pytest.raises(CliError, match="--stable"):
        edited(None, Edit(canary={"2": 5}))

    assert edited(None, Edit(stable="1", canary={"2": 5})).stable == "1"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("2", "VERSION=PERCENT"),
        ("2=x", "VERSION=PERCENT"),
        ("2=101", "0 to 100"),
        ("v=1", "no version"),
        ("2=0.00001", "4 dec"),
    ],
)
def test_a_share_that_is_none_is_refused_with_the_reason(value: str, message: str) -> None:
    with pytest.raises(CliError, match=message):
        parse_shares("--canary", [value])


def test_shares_are_versions_and_percents() -> None:
    assert parse_shares("--canary", ["2=10", "10=0.5"]) == {"2": 10, "10": 0.5}

    with pytest.raises(CliError, match="twice"):
        parse_shares("--canary", ["2=10", "2=5"])


def test_a_route_in_words_names_everything() -> None:
    try:
        text = in_words(edited(ROUTE, Edit(author="ana", reason="why not")))
    except BadValueError:
        pytest.fail("the route is good")

    assert text == (
        "stable 1, canary 2 10% (at 0), canary 4 5% (at 50), shadow 3 100%, label best = 1, sticky by user_id"
        " [by ana: why not]"
    )
