from typing import get_args

import pytest

from services.core.batching_spec import Batching
from services.core.model_spec import Access, FeatureUse, Framework, Limits, ModelSpec, Placement, VersionPolicy
from services.core.spec import BadValueError

FRAMEWORKS = get_args(Framework)
NO_VERSION = " is no version: a decimal number without leading zeros, at most 18 digits"
NO_NAME = " is no name: letters, digits, '.', '_' and '-', at most 128, the first a letter or digit"
NO_SOURCE = " names no source of a key: give NAME (a request parameter), header:NAME or input:NAME"
ONE_OF_THREE = 'version_policy: give exactly one of {"latest": N}, {"all": true}, {"specific": ["1", …]}'
EXAMPLE = b"""{"repository": "file:///srv/models/digits", "placement": {"pool": "default"},
  "version_policy": {"latest": 1}, "default_version": "1", "keep_previous": 1, "batching": {"max_batch_size": 64},
  "limits": {"max_request_rows": 1024, "max_request_bytes": 67108864, "max_execution_ms": 1000,
             "max_memory_bytes": 2147483648},
  "default_deadline_ms": 30000, "idempotent": true, "features": [], "access": {"anonymous": true},
  "versions": {"2": {"framework": "xgboost"}}}"""


def test_an_empty_object_is_a_model_with_the_documented_defaults() -> None:
    spec = ModelSpec.parse(b"{}")

    batching = spec.batching
    assert (batching.max_batch_size, batching.max_queue_size, batching.max_queue_bytes) == (64, 4096, 256 * 1024**2)
    assert (batching.max_queue_delay_microseconds, batching.slots, batching.preferred_batch_size) == (0, 2, ())
    assert (spec.version_policy, spec.keep_previous) == (VersionPolicy(latest=1), 1)
    assert (spec.placement, spec.access, spec.required_for_ready) == (Placement(pool="default"), Access(), False)
    assert spec.dump() == b"{}"


def test_an_operators_value_is_read_as_written() -> None:
    spec = ModelSpec.parse(EXAMPLE)

    assert spec.limits == Limits(
        max_request_rows=1024, max_request_bytes=64 * 1024**2, max_execution_ms=1000, max_memory_bytes=2 * 1024**3
    )
    assert spec.for_version("2").framework == "xgboost"
    assert spec.for_version("1") is spec


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ('{"modle": 1}', "modle: unknown field"),
        ('{"repository": 5}', "repository: Input should be a valid string"),
        ('{"placement": {"pool": ""}}', "placement.pool: String should have at least 1 character"),
        ('{"placement": "gpu"}', "placement: Input should be an object"),
        ('{"version_policy": {}}', ONE_OF_THREE),
        ('{"version_policy": {"latest": 1, "all": true}}', ONE_OF_THREE),
        ('{"version_policy": {"all": false}}', ONE_OF_THREE),
        ('{"version_policy": {"latest": 0}}', "version_policy.latest: Input should be greater than or equal to 1"),
        ('{"version_policy": {"specific": ["1", "x"]}}', f"version_policy.specific.1: 'x'{NO_VERSION}"),
        ('{"default_version": "01"}', f"default_version: '01'{NO_VERSION}"),
        ('{"default_version": 1}', "default_version: Input should be a valid string"),
        ('{"keep_previous": -1}', "keep_previous: Input should be greater than or equal to 0"),
        (
            '{"framework": "caffe"}',
            f"framework: Input should be {', '.join(map(repr, FRAMEWORKS[:-1]))} or {FRAMEWORKS[-1]!r}",
        ),
        ('{"warm_up": {"file": "../x"}}', "warm_up: file '../x' is not inside the version's folder"),
        ('{"warm_up": {"file": "/x"}}', "warm_up: file '/x' is not inside the version's folder"),
        ('{"warm_up": {"sizes": [1, 65]}}', "warm_up.sizes: 65 is not within 1 to max_batch_size"),
        ('{"warm_up": {"sizes": [0]}}', "warm_up.sizes: 0 is not within 1 to max_batch_size"),
        ('{"count": 2}', 'count: unknown field; write "instances": {"count": 2}'),
        ('{"instances": {"count": 0}}', "instances.count: Input should be greater than or equal to 1"),
        ('{"idempotent": "yes"}', "idempotent: Input should be a valid boolean"),
        ('{"default_deadline_ms": 0}', "default_deadline_ms: Input should be greater than or equal to 1"),
        ('{"batching": {"max_batch_size": -1}}', "batching.max_batch_size: Input should be greater than or equal to 0"),
        (
            '{"batching": {"max_batch_size": 65537}}',
            "batching.max_batch_size: Input should be less than or equal to 65536",
        ),
        ('{"batching": {"max_batch_size": "64"}}', "batching.max_batch_size: Input should be a valid integer"),
        ('{"batching": {"max_queue_size": 10}}', "batching: max_batch_size 64 exceeds max_queue_size 10"),
        (
            '{"batching": {"max_batch_size": 8, "preferred_batch_size": [4, 16]}}',
            "batching: preferred_batch_size 16 is not within 1 to max_batch_size 8",
        ),
        (
            '{"batching": {"preferred_batch_size": [0]}}',
            "batching: preferred_batch_size 0 is not within 1 to max_batch_size 64",
        ),
        ('{"batching": {"max_queue_delay_us": 5}}', "batching.max_queue_delay_us: unknown field"),
        ('{"batching": {"slots": 65}}', "batching.slots: Input should be less than or equal to 64"),
        ('{"limits": {"max_request_rows": 0}}', "limits.max_request_rows: Input should be greater than or equal to 1"),
        (
            '{"limits": {"max_memory_bytes": 1}}',
            "limits.max_memory_bytes: Input should be greater than or equal to 1048576",
        ),
        (
            '{"features": [{"view": "v", "entity": "user", "input": ""}]}',
            "features.0.input: String should have at least 1 character",
        ),
        ('{"features": [{"view": "v/w", "entity": "user", "input": "x"}]}', f"features.0.view: 'v/w'{NO_NAME}"),
        (
            '{"features": [{"view": "v", "entity": "body:user", "input": "x"}]}',
            f"features.0.entity: 'body:user'{NO_SOURCE}",
        ),
        (
            '{"features": [{"view": "v", "entity": "u", "input": "x"}, {"view": "w", "entity": "u", "input": "x"}]}',
            "features: input 'x' is filled twice",
        ),
        ('{"access": {"anonymus": true}}', "access.anonymus: unknown field"),
        ('{"versions": {"v2": {}}}', f"versions.v2: 'v2'{NO_VERSION}"),
        ('{"versions": {"2": 5}}', "versions.2: Input should be an object"),
        (
            '{"versions": {"2": {"keep_previous": -1, "cout": 1}}}',
            "versions.2: keep_previous: Input should be greater than or equal to 0; cout: unknown field",
        ),
        ('{"versions": {"2": {"keep_previous": "2"}}}', "versions.2: keep_previous: Input should be a valid integer"),
        ('{"versions": {"2": {"versions": {}}}}', "versions.2: cannot override versions"),
        (
            '{"versions": {"2": {"batching": {"max_queue_size": 8}}}}',
            "versions.2: batching: max_batch_size 64 exceeds max_queue_size 8",
        ),
        ('{"versions": {"2": {"batching": null}}}', "versions.2: batching: Input should be an object"),
    ],
)
def test_a_wrong_value_is_refused_by_field(raw: str, message: str) -> None:
    with pytest.raises(BadValueError) as caught:
        ModelSpec.parse(raw.encode())

    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("policy", "chosen"),
    [
        (VersionPolicy(latest=1), {"10"}),
        (VersionPolicy(latest=2), {"10", "9"}),
        (VersionPolicy(latest=9), {"1", "9", "10"}),
        (VersionPolicy(all=True), {"1", "9", "10"}),
        (VersionPolicy(specific=("1", "7")), {"1"}),
        (VersionPolicy(specific=()), set()),
    ],
)
def test_a_version_policy_chooses_among_what_the_repository_holds(policy: VersionPolicy, chosen: set[str]) -> None:
    assert policy.choose(["9", "10", "1"]) == chosen


def test_an_override_changes_nested_fields_one_by_one() -> None:
    spec = ModelSpec.parse(
        b'{"batching": {"max_batch_size": 8, "slots": 4}, "keep_previous": 2,'
        b' "versions": {"2": {"batching": {"max_batch_size": 16, "preferred_batch_size": [4]}}}}'
    )

    second = spec.for_version("2")
    assert second.batching == Batching(max_batch_size=16, slots=4, preferred_batch_size=(4,))
    assert (second.keep_previous, second.versions) == (2, {})
    assert spec.for_version("1").batching == Batching(max_batch_size=8, slots=4)


def test_an_override_of_a_version_policy_replaces_it_whole() -> None:
    spec = ModelSpec.parse(b'{"version_policy": {"latest": 2}, "versions": {"2": {"version_policy": {"all": true}}}}')

    assert spec.for_version("2").version_policy == VersionPolicy(all=True)


def test_an_override_replaces_lists_and_may_take_a_value_away() -> None:
    use = b'{"view": "v", "entity": "user", "input": "x"}'
    spec = ModelSpec.parse(
        b'{"framework": "onnx", "features": [' + use + b'], "versions": {"2": {"framework": null, "features": []}}}'
    )

    assert spec.features == (FeatureUse(view="v", entity="user", input="x"),)
    assert (spec.for_version("2").framework, spec.for_version("2").features) == (None, ())


@pytest.mark.parametrize(
    ("batching", "limits", "rows"),
    [
        (Batching(), Limits(), 1024),
        (Batching(max_batch_size=1024, max_queue_size=16384), Limits(), 16384),
        (Batching(max_batch_size=1000, max_queue_size=2000), Limits(), 2000),
        (Batching(max_batch_size=1, max_queue_size=1), Limits(), 1),
        (Batching(max_batch_size=0), Limits(), 1),
        (Batching(), Limits(max_request_rows=3), 3),
    ],
)
def test_a_request_may_be_as_large_as_sixteen_batches_and_the_queue(
    batching: Batching, limits: Limits, rows: int
) -> None:
    assert ModelSpec(batching=batching, limits=limits).max_request_rows() == rows


@pytest.mark.parametrize(
    ("raw", "sizes"),
    [
        ("{}", (1, 64)),
        ('{"batching": {"max_batch_size": 0}}', (1,)),
        ('{"batching": {"preferred_batch_size": [16, 8]}}', (1, 8, 16, 64)),
        ('{"batching": {"preferred_batch_size": [16, 8]}, "warm_up": {"sizes": [32, 4, 4]}}', (4, 32)),
    ],
)
def test_warm_up_runs_one_row_preferred_sizes_and_the_largest_unless_told(raw: str, sizes: tuple[int, ...]) -> None:
    assert ModelSpec.parse(raw.encode()).warm_up_sizes() == sizes


@pytest.mark.parametrize("entity", ["header:authorization", "header:X-Api-Key", "header:cookie"])
def test_what_callers_prove_themselves_with_is_no_key_of_features(entity: str) -> None:
    with pytest.raises(ValueError, match="is what callers prove themselves with: name another header"):
        FeatureUse(view="v", entity=entity, input="x")
