"""A route, changed as an operator asked; pure. Canaries keep their place on the circle whatever else changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from services.cli.errors import CliError
from services.core.names import is_version
from services.core.route_spec import Canary, RouteSpec
from services.core.spec import explain
from services.core.split import POINTS, default_start, points_of_percent

_STARTS_TRIED = 64


@dataclass(frozen=True, slots=True)
class Edit:
    """What is to change; None or empty = stays."""

    stable: str | None = None
    canary: Mapping[str, float] | None = None  # version -> percent; 0 keeps the version's place, with nobody in it
    shadow: Mapping[str, float] | None = None  # version -> percent; 0 removes it
    drop: tuple[str, ...] = ()  # versions that stop being canary and shadow, before the rest is set
    sticky_by: str | None = None
    author: str | None = None
    reason: str | None = None


def parse_shares(option: str, values: Sequence[str]) -> dict[str, float]:
    """`["2=10", "3=0.5"]` as version -> percent. Raises CliError naming what is wrong."""
    shares: dict[str, float] = {}
    for value in values:
        version, equals, percent = value.partition("=")
        try:
            number = float(percent)
            points_of_percent(number)
        except ValueError as error:
            reason = f": {error}" if equals and "percent" in str(error) else ""
            raise CliError(f"{option} {value!r}: expected VERSION=PERCENT, as in 2=10{reason}", code=2) from None
        if not is_version(version):
            raise CliError(f"{option} {value!r}: {version!r} is no version, which is a whole number", code=2)
        if version in shares:
            raise CliError(f"{option}: version {version} is named twice", code=2)
        shares[version] = number
    return shares


def edited(route: RouteSpec | None, edit: Edit) -> RouteSpec:
    """The route after `edit`; None = there is none yet. Raises CliError for what is no route."""
    if route is None and edit.stable is None:
        raise CliError("the model has no route yet: name its --stable version", code=2)
    before = route.model_dump() if route else {}
    after = {**before, **_given(edit)}
    after["canary"] = [each.model_dump() for each in _canaries(route, edit, str(after["stable"]))]
    after["shadow"] = _shadow(route, edit)
    try:
        return RouteSpec.model_validate(after)
    except ValidationError as error:
        raise CliError(f"that is no route: {explain(error)}") from None


def _given(edit: Edit) -> dict[str, object]:
    """Author and reason belong to one change: they never stay from the change before."""
    given: dict[str, object] = {"author": edit.author or "", "reason": edit.reason or ""}
    if edit.stable is not None:
        given["stable"] = edit.stable
    if edit.sticky_by is not None:
        given["sticky_by"] = edit.sticky_by or None
    return given


def _canaries(route: RouteSpec | None, edit: Edit, stable: str) -> list[Canary]:
    """The canaries of before at their old places, then the new ones; one that became stable is none any more."""
    wanted = dict(edit.canary or {})
    gone = {stable, *edit.drop}
    if stable in wanted:
        raise CliError(f"--canary {stable}: version {stable} is stable", code=2)
    kept = [
        each.model_copy(update={"percent": wanted.pop(each.version, each.percent)})
        for each in (route.canary if route else ())
        if each.version not in gone
    ]
    for version in sorted(wanted, key=int):
        if version in gone:
            raise CliError(f"version {version} is both set and dropped", code=2)
        kept.append(Canary(version=version, percent=wanted[version], at=_place(kept)))
    return kept


def _place(canaries: Sequence[Canary]) -> float:
    """Where a new canary begins, in percent: the first of the usual starts that nobody else has or is in."""
    taken = {points_of_percent(each.at) % POINTS for each in canaries}
    spans = [(points_of_percent(each.at) % POINTS, points_of_percent(each.percent)) for each in canaries]
    for index in range(_STARTS_TRIED):
        start = default_start(index)
        inside = any((start - begin) % POINTS < points for begin, points in spans)
        if start not in taken and not inside:
            return start * 100 / POINTS
    return max(((begin + points) % POINTS for begin, points in spans), default=0) * 100 / POINTS


def _shadow(route: RouteSpec | None, edit: Edit) -> dict[str, float]:
    before = route.shadow if route else {}
    kept = {version: percent for version, percent in before.items() if version not in edit.drop}
    return {version: percent for version, percent in {**kept, **(edit.shadow or {})}.items() if percent > 0}


def in_words(route: RouteSpec) -> str:
    """A route in one line."""
    parts = [f"stable {route.stable}"]
    parts += [f"canary {each.version} {each.percent:g}% (at {each.at:g})" for each in route.canary]
    parts += [f"shadow {version} {percent:g}%" for version, percent in route.shadow.items()]
    parts += [f"label {name} = {version}" for name, version in route.labels.items()]
    parts += [f"pin {key} = {version}" for key, version in route.pins.items()]
    parts += [f"{each.header}: {each.equals} = {each.version}" for each in route.match]
    parts += [f"fallback {route.fallback.version}"] if route.fallback else []
    parts += [f"sticky by {route.sticky_by}"] if route.sticky_by else []
    said = ": ".join(part for part in (f"by {route.author}" if route.author else "", route.reason) if part)
    return ", ".join(parts) + (f" [{said}]" if said else "")
