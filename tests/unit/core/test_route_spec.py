from datetime import UTC, datetime

import pytest

from services.core.route_spec import Canary, Fallback, Match, RouteSpec
from services.core.spec import BadValueError

NO_VERSION = " is no version: a decimal number without leading zeros, at most 18 digits"
NO_SOURCE = " names no source of a key: give NAME (a request parameter), header:NAME or input:NAME"
LONG_FORM = b"""{"stable": "1",
  "canary": [{"version": "2", "percent": 10, "at": 0}, {"version": "4", "percent": 0.5, "at": 50}],
  "labels": {"champion": "1"}, "pins": {"qa-7": "2"}, "match": [{"header": "x-beta", "equals": "1", "version": "4"}],
  "fallback": {"version": "1"}, "until": "2026-12-24T00:00:00Z", "author": "ana", "reason": "new features"}"""


def test_a_route_is_read_as_written() -> None:
    route = RouteSpec.parse(LONG_FORM)

    assert route == RouteSpec(
        stable="1",
        canary=(Canary(version="2", percent=10, at=0), Canary(version="4", percent=0.5, at=50)),
        labels={"champion": "1"},
        pins={"qa-7": "2"},
        match=(Match(header="x-beta", equals="1", version="4"),),
        fallback=Fallback(version="1"),
        until=datetime(2026, 12, 24, tzinfo=UTC),
        author="ana",
        reason="new features",
    )
    assert RouteSpec.parse(route.dump()) == route


def test_the_short_form_starts_at_the_documented_points_in_order_of_version() -> None:
    route = RouteSpec.parse(b'{"stable": "1", "canary": {"10": 5, "9": 10, "2": 1, "3": 0.0001, "11": 0}}')

    assert [(canary.version, canary.percent, canary.at) for canary in route.canary] == [
        ("2", 1, 0),
        ("3", 0.0001, 50),
        ("9", 10, 25),
        ("10", 5, 75),
        ("11", 0, 12.5),
    ]


def test_the_short_and_the_long_form_cut_the_same_circle() -> None:
    short = RouteSpec.parse(b'{"stable": "1", "canary": {"2": 10, "3": 5}}')

    assert RouteSpec.parse(short.dump()).ranges().arcs() == short.ranges().arcs()
    assert short.ranges().arcs() == [(0, 100_000, "2"), (500_000, 550_000, "3")]


def test_a_range_that_starts_at_100_percent_starts_at_0() -> None:
    route = RouteSpec(stable="1", canary=(Canary(version="2", percent=1, at=100),))

    assert route.ranges().arcs() == [(0, 10_000, "2")]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("{}", "stable: Field required"),
        ('{"stable": 1}', "stable: Input should be a valid string"),
        ('{"stable": "one"}', f"stable: 'one'{NO_VERSION}"),
        ('{"stable": "1", "canray": {}}', "canray: unknown field"),
        ('{"stable": "1", "canary": 5}', "canary: Input should be a valid array"),
        ('{"stable": "1", "canary": null}', "canary: Input should be a valid array"),
        ('{"stable": "1", "canary": {"two": 5}}', f"canary: 'two'{NO_VERSION}"),
        ('{"stable": "1", "canary": {"1": 5}}', "canary: version 1 is stable already"),
        ('{"stable": "1", "canary": {"2": null}}', "canary.0.percent: Input should be a valid number"),
        ('{"stable": "1", "canary": {"2": "5"}}', "canary.0.percent: Input should be a valid number"),
        ('{"stable": "1", "canary": {"2": true}}', "canary.0.percent: Input should be a valid number"),
        ('{"stable": "1", "canary": {"2": -1}}', "canary.0.percent: percent -1.0 is not within 0 to 100"),
        ('{"stable": "1", "canary": {"2": 100.5}}', "canary.0.percent: percent 100.5 is not within 0 to 100"),
        ('{"stable": "1", "canary": {"2": 0.00005}}', "canary.0.percent: percent 5e-05 has more than 4 decimals"),
        ('{"stable": "1", "canary": {"2": NaN}}', "canary.0.percent: Input should be a finite number"),
        ('{"stable": "1", "canary": {"2": Infinity}}', "canary.0.percent: Input should be a finite number"),
        (
            '{"stable": "1", "canary": {"2": 60, "3": 40.0001}}',
            "percents sum to 100.0001, over 100: no room for version 3",
        ),
        (
            '{"stable": "1", "canary": [{"version": "2"}]}',
            "canary.0.percent: Field required; canary.0.at: Field required",
        ),
        (
            '{"stable": "1", "canary": [{"version": "2", "percent": 1, "at": -1}]}',
            "canary.0.at: percent -1.0 is not within 0 to 100",
        ),
        (
            '{"stable":"1","canary":[{"version":"2","percent":1,"at":0},{"version":"2","percent":1,"at":5}]}',
            "canary: version 2 is named twice",
        ),
        ('{"stable": "1", "shadow": {"3": 101}}', "shadow.3: percent 101.0 is not within 0 to 100"),
        ('{"stable": "1", "shadow": {"x": 1}}', f"shadow.x: 'x'{NO_VERSION}"),
        (
            '{"stable": "1", "labels": {"2": "3"}}',
            "labels.2: '2' is no label: it would hide the version of that number",
        ),
        ('{"stable": "1", "labels": {"best": "x"}}', f"labels.best: 'x'{NO_VERSION}"),
        ('{"stable": "1", "pins": {"qa": 2}}', "pins.qa: Input should be a valid string"),
        (
            '{"stable": "1", "match": [{"header": "X-Beta", "equals": "1", "version": "2"}]}',
            "match.0.header: String should match pattern '^[a-z0-9_.-]+$'",
        ),
        ('{"stable": "1", "match": [{"header": "x-beta", "version": "2"}]}', "match.0.equals: Field required"),
        ('{"stable": "1", "fallback": "1"}', "fallback: Input should be an object"),
        ('{"stable": "1", "sticky_by": "cookie:user"}', f"sticky_by: 'cookie:user'{NO_SOURCE}"),
        ('{"stable": "1", "until": "2026-12-24T00:00:00"}', "until: Input should have timezone info"),
        ('{"stable": "1", "until": 1798070400}', "until: Input should be a valid datetime"),
    ],
)
def test_a_wrong_route_is_refused_by_field(raw: str, message: str) -> None:
    with pytest.raises(BadValueError) as caught:
        RouteSpec.parse(raw.encode())

    assert str(caught.value) == message


def test_the_named_versions_are_those_that_any_rule_can_choose() -> None:
    route = RouteSpec.parse(
        b'{"stable": "1", "canary": {"2": 0}, "shadow": {"3": 1}, "labels": {"best": "4"}, "pins": {"k": "5"},'
        b' "match": [{"header": "x", "equals": "1", "version": "6"}], "fallback": {"version": "7"}}'
    )

    assert route.named_versions() == {"1", "2", "3", "4", "5", "6", "7"}
    assert RouteSpec(stable="1").named_versions() == {"1"}
