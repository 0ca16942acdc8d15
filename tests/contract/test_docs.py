"""The documentation says what is true: examples parse, commands and files exist, generated pages are current."""

import json
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from services.cli.app import app
from services.core.feature_spec import FeatureViewSpec
from services.core.model_spec import ModelSpec
from services.core.registry import ConfigStatus, Endpoint, Inventory, ServiceRecord
from services.core.route_spec import RouteSpec
from services.core.spec import BadValueError, Spec

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").glob("*.md")])
README = (ROOT / "README.md").read_text()

SPECS: list[tuple[str, type[Spec]]] = [
    ("models/", ModelSpec),
    ("routes/", RouteSpec),
    ("feature_views/", FeatureViewSpec),
    ("endpoints/", Endpoint),
    ("services/", ServiceRecord),
    (r"status/runtime/.*/inventory", Inventory),
    ("status/", ConfigStatus),
]
ROOTS = "models|routes|feature_views|endpoints|services|status"
LISTED = re.compile(rf"^((?:{ROOTS})/\S+) +(\{{.*\}})$", re.MULTILINE)
PUT = re.compile(rf"etcdctl put /turnout/((?:{ROOTS})/\S+) '(\{{.*\}})'")
FOLDERS = ("services", "docs", "deploy", "loadtest", "tests")
REFUSED = {'{"stable": "1", "canary": {"2": 125}}'}  # shown as refused

FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def spec_of(key: str) -> type[Spec]:
    return next(spec for pattern, spec in SPECS if re.match(pattern, key))


def examples() -> list[tuple[str, str]]:
    return [*LISTED.findall(README), *PUT.findall(README)]


def strange_fields(spec: type[Spec], value: dict[str, Any]) -> set[str]:
    """Fields that a record ignores, since another release may write them."""
    return value.keys() - spec.model_fields.keys()


def test_the_readme_has_an_example_of_every_kind_of_key() -> None:
    shown = {spec_of(key) for key, _ in examples()}

    assert shown >= {ModelSpec, RouteSpec, FeatureViewSpec, Endpoint, ServiceRecord, ConfigStatus, Inventory}


@pytest.mark.parametrize(("key", "value"), examples())
def test_an_example_of_a_key_is_accepted(key: str, value: str) -> None:
    spec = spec_of(key)
    if value in REFUSED:
        with pytest.raises(BadValueError):
            spec.parse(value.encode())
        return

    spec.parse(value.encode())
    assert strange_fields(spec, json.loads(value)) == set()


@pytest.mark.parametrize("source", [code for page in PAGES for kind, code in FENCED.findall(page.read_text())
                                    if kind == "python"])  # fmt: skip
def test_an_example_in_python_compiles(source: str) -> None:
    compile(source, "example", "exec")


def commands(page: Path) -> Iterator[list[str]]:
    """Every call of `turnout` in a page's code, as words; what stands for something else is left out."""
    text = page.read_text()
    lines = [line.removeprefix("$ ") for _, code in FENCED.findall(text) for line in code.splitlines()]
    for line in [*lines, *SPAN.findall(FENCED.sub("", text))]:
        if re.match(r"(\S*/)?turnout [a-z-]", line):
            yield shlex.split(line.replace("…", ""), comments=True)[1:]


@pytest.mark.parametrize(
    ("page", "words"), [(page, words) for page in PAGES for words in commands(page)],
    ids=lambda value: value if isinstance(value, str) else " ".join(value) if isinstance(value, list) else value.name,
)  # fmt: skip
def test_a_command_exists_with_its_options(page: Path, words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"{name(page)}: turnout {' '.join(words)}"
        command = command.commands[rest.pop(0)]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}

    assert {word for word in rest if word.startswith("--")} - known - {"--help"} == set()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_make_target_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = page.read_text()
    code = [*(code for _, code in FENCED.findall(text)), *SPAN.findall(FENCED.sub("", text))]
    named = {word for part in code for word in re.findall(r"(?:^|\$ |    )make ([a-z]+)", part, re.MULTILINE)}

    assert named - targets == set()


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings make."""
    headings = re.findall(r"^#+ +(.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(FENCED.sub("", page.read_text())):
        path, _, anchor = target.partition("#")
        if path.startswith(("http:", "https:")):
            continue
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_file_of_ours_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_0-9]+\.py)`", page.read_text()))
    ours = [name(path) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]

    assert {path for path in named if not any(each.endswith(f"/{path}") or each == path for each in ours)} == set()


def test_every_variable_of_the_environment_is_a_setting() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    known = set(re.findall(r"`(TURNOUT_[A-Z_]+)`", page))
    settings = re.findall(r"^\| `([A-Z_]+)` ", page, re.MULTILINE)
    shared = {f"{prefix}{setting}" for prefix in known if prefix.endswith("_") for setting in settings}
    named = {word for each in PAGES for word in re.findall(r"TURNOUT_[A-Z_]+(?![A-Z_*])", each.read_text())}

    assert named - known - shared - {"TURNOUT_ROUTER_FOO"} == set()


def test_the_page_of_settings_is_current() -> None:
    """`python docs/generate_configuration.py` writes it."""
    made = runpy.run_path(str(ROOT / "docs" / "generate_configuration.py"))["page"]()

    assert made == (ROOT / "docs" / "configuration.md").read_text()


def test_every_decision_has_its_number_and_a_status() -> None:
    pages = sorted((ROOT / "docs" / "adr").glob("*.md"))
    numbers = [int(page.name.partition("-")[0]) for page in pages]

    assert len(set(numbers)) == len(pages)
    for number, page in zip(numbers, pages, strict=True):
        text = page.read_text()
        assert page.name.startswith(f"{number:04}-")
        assert text.startswith(f"# {number}. ")
        assert "\nStatus: " in text
