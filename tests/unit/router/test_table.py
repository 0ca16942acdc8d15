import json
from typing import Any

import pytest

from services.core.errors import InvalidRequestError, NotFoundError
from services.core.model_spec import ModelSpec
from services.core.signature import Given, check_inputs
from services.router.desired import Desired
from services.router.table import Entry, Table, Target
from tests.support.puppets import X, Y, signature
from turnout.v1 import link_pb2

GOOD = Given("x", "FP32", [2, 2], bytes(16))


def served(version: str = "1", *inputs: Any, **fields: Any) -> link_pb2.Served:
    described = signature(inputs or (X,), (Y,), batches=fields.pop("batches", True))
    return link_pb2.Served(model="m", version=version, signature=described, digest="sha", **fields)


def spec_of(value: dict[str, Any]) -> ModelSpec:
    return ModelSpec.parse(json.dumps(value).encode())


def target(*inputs: Any, spec: dict[str, Any] | None = None, **fields: Any) -> Target:
    return Target(served("1", *inputs, **fields), spec_of(spec or {}))


def featured(entity: str, *inputs: Any) -> Target:
    return target(*inputs, spec={"features": [{"view": "users", "entity": entity, "input": "ages"}]})


AGES = ("ages", "FP32", (-1, 2))
USER = Given("user", "INT64", [2], bytes(16))


@pytest.mark.parametrize(
    "given",
    [
        GOOD,
        GOOD._replace(shape=[0, 2], data=b""),
        GOOD._replace(name="z"),
        GOOD._replace(datatype="FP64"),
        GOOD._replace(shape=[2, 2, 1]),
        GOOD._replace(shape=[4]),
        GOOD._replace(shape=[4, 1]),
        GOOD._replace(shape=[-2, 2]),
        GOOD._replace(data=bytes(15)),
        GOOD._replace(shape=[]),
    ],
)
def test_the_fast_path_says_what_the_full_check_says(given: Given) -> None:
    one = target()

    def told(check: Any) -> Any:
        try:
            return check()
        except InvalidRequestError as error:
            return str(error)

    assert told(lambda: one.check([given], ())) == told(lambda: check_inputs("m", one.signature, [given]))


def test_a_row_dimension_that_is_fixed_is_held_to() -> None:
    with pytest.raises(InvalidRequestError, match=r"has shape \[4, 2\]"):
        target(("x", "FP32", (4, 2))).check([GOOD], ())


@pytest.mark.parametrize(("mine", "theirs", "most"), [(None, 0, 1024), (None, 5, 5), (3, 5, 3), (9, 5, 5)])
def test_a_request_has_at_most_as_many_rows_as_model_and_batcher_allow(
    mine: int | None, theirs: int, most: int
) -> None:
    one = target(spec={"limits": {"max_request_rows": mine}} if mine else {}, max_request_rows=theirs)
    rows = [GOOD._replace(shape=[count, 2], data=bytes(8 * count)) for count in (most, most + 1)]

    assert one.check([rows[0]], ()) == most
    with pytest.raises(InvalidRequestError, match=f"{most + 1} rows in one request; model m takes at most {most}"):
        one.check([rows[1]], ())


def test_rows_mean_nothing_to_a_model_that_does_not_batch() -> None:
    one = target(("x", "FP32", (-1, 2)), batches=False, max_request_rows=1)

    assert one.check([GOOD], ()) == 1


def test_outputs_are_checked_against_the_signature() -> None:
    assert target().check([GOOD], ["y"]) == 2
    with pytest.raises(InvalidRequestError, match="has no output 'z'; its outputs are y"):
        target().check([GOOD], ["y", "z"])


def test_what_features_fill_is_not_the_callers_to_give() -> None:
    one = featured("user_id", X, AGES)

    assert one.check([GOOD], ()) == 2
    with pytest.raises(InvalidRequestError, match="has no input 'ages'; its inputs are x"):
        one.check([GOOD, GOOD._replace(name="ages")], ())
    assert featured("user_id", AGES).check([], ()) == 1


def test_an_input_of_entity_keys_has_a_key_a_row() -> None:
    one = featured("input:user", X, AGES)

    assert (one.check([GOOD, USER], ()), one.entity_inputs) == (2, {"user"})
    assert featured("input:user", AGES).check([USER], ()) == 2
    with pytest.raises(InvalidRequestError, match="inputs differ in rows: m: 2, user: 1"):
        one.check([GOOD, USER._replace(shape=[1], data=bytes(8))], ())
    with pytest.raises(InvalidRequestError, match="'user': has 9 bytes"):
        one.check([GOOD, USER._replace(data=bytes(9))], ())


def test_an_input_that_the_model_takes_too_is_no_mere_key() -> None:
    assert featured("input:x", X, AGES).entity_inputs == set()


def build(versions: list[str], **values: Any) -> tuple[Table, Desired, list[Target]]:
    desired, made = Desired(), list[Target]()
    changes = [("models/m", json.dumps(values.get("model", {})).encode(), 1)]
    if "route" in values:
        changes.append(("routes/m", json.dumps(values["route"]).encode(), 1))
    desired.apply(changes)
    table = Table(made.append)
    table.rebuild(desired, {("m", version): served(version) for version in versions})
    return table, desired, made


def test_an_unknown_model_is_named_and_the_known_ones_with_it() -> None:
    table, _, _ = build(["1"])

    with pytest.raises(NotFoundError, match="model 'n' is unknown; known are m"):
        table.entry("n")
    with pytest.raises(NotFoundError) as error:
        table.entry("n" * 100_000)
    assert len(str(error.value)) < 200


def test_versions_of_models_that_nobody_configured_are_not_served() -> None:
    table, desired, _ = build(["1"])
    other = served("1")
    other.model = "stray"

    table.rebuild(desired, {("stray", "1"): other})

    assert list(table.entries()) == ["m"]
    assert table.entry("m").targets == {}


def test_without_a_route_the_default_or_else_the_newest_version_serves() -> None:
    assert build(["2", "10"])[0].entry("m").chooser.stable().version == "10"
    assert build(["2", "10"], model={"default_version": "2"})[0].entry("m").chooser.stable().version == "2"


def test_a_target_lives_on_while_nothing_of_it_changes() -> None:
    table, desired, made = build(["1", "2"])
    first = dict(table.entry("m").targets)

    desired.apply([("routes/m", b'{"stable": "1"}', 2)])
    table.rebuild(desired, {("m", "1"): served("1"), ("m", "2"): served("2", max_request_rows=7)})
    assert table.entry("m").targets["1"] is first["1"]
    assert table.entry("m").targets["2"].max_request_rows == 7

    desired.apply([("models/m", b'{"versions": {"1": {"idempotent": false}}}', 3)])
    table.rebuild(desired, {("m", "1"): served("1")})
    assert (table.entry("m").targets["1"].idempotent, first["1"].idempotent) == (False, True)
    assert len(made) == 4


def test_a_model_that_says_nothing_of_strangers_is_as_open_as_its_router() -> None:
    said = [
        build(["1"], model={"access": access})[0].entry("m")
        for access in ({}, {"anonymous": False}, {"anonymous": True})
    ]

    assert [entry.is_open(by_default=True) for entry in said] == [True, False, True]
    assert [entry.is_open(by_default=False) for entry in said] == [False, False, True]


def test_an_entry_knows_which_names_only_the_mesh_may_say() -> None:
    match = [
        {"header": "x-turnout-beta", "equals": "1", "version": "2"},
        {"header": "x-beta", "equals": "1", "version": "2"},
    ]
    route = {"stable": "1", "match": match, "sticky_by": "turnout_user"}

    assert build(["1", "2"], route=route)[0].entry("m").internal_names == {"x-turnout-beta", "turnout_user"}


def shadowed(percents: dict[str, float]) -> Entry:
    return build(["1", "2", "3"], route={"stable": "1", "shadow": percents})[0].entry("m")


def test_a_user_is_always_or_never_in_a_shadow() -> None:
    entry = shadowed({"2": 30, "3": 0})
    chosen = {number: entry.shadow_candidates(f"u{number}".encode(), "1", pytest.fail) for number in range(1000)}

    assert {tuple(each) for each in chosen.values()} == {(), ("2",)}
    assert 250 < sum(map(len, chosen.values())) < 350


def test_without_a_key_a_shadow_is_drawn_and_no_version_is_its_own() -> None:
    entry = shadowed({"2": 30, "3": 100})

    assert entry.shadow_candidates(b"", "1", lambda: 299_999) == ["2", "3"]
    assert entry.shadow_candidates(b"", "1", lambda: 300_000) == ["3"]
    assert entry.shadow_candidates(b"", "3", lambda: 0) == ["2"]


@pytest.mark.parametrize("says", [True, False])
def test_whether_a_version_keeps_state_is_for_who_serves_it_to_say(says: bool) -> None:  # noqa: FBT001
    batching = {"sequence_batching": None if says else {}}

    assert target(spec={"batching": batching}, keeps_state=says).is_sequential == says
    assert target(spec={"batching": batching}).is_sequential != says
