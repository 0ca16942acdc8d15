from pathlib import Path

import pytest

from services.cli.app import run

COMMANDS = [
    ["up"],
    ["down"],
    ["predict"],
    ["models"],
    ["models", "index"],
    ["models", "inspect"],
    ["models", "load"],
    ["models", "unload"],
    ["play"],
    ["doctor"],
    ["routes", "get"],
    ["routes", "set"],
    ["routes", "watch"],
    ["shadow", "report"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--help"]) == 0
    assert f"Example: turnout {' '.join(command)}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["nonsense"], 2),
        (["up", "--replicas", "0"], 2),
        (["up", "--detach", "--demo-then-exit"], 2),
        (["predict", "m", "--input", "x"], 2),
        (["routes", "set", "m", "--canary", "2"], 2),
        (["routes", "set", "no/name", "--stable", "1"], 2),
        (["models", "--etcd", "127.0.0.1:1"], 1),
        (["models", "index", "--etcd", "127.0.0.1:1"], 1),
        (["models", "load", "m", "--config", "{"], 1),
        (["models", "load", "m", "--version", "latest"], 2),
        (["models", "load", "m", "--file", "1/model.onnx"], 2),
        (["models", "load", "m", "--json", "--etcd", "127.0.0.1:1"], 1),
        (["models", "unload", "m", "--json", "--etcd", "127.0.0.1:1"], 1),
        (["predict", "m", "--address", "127.0.0.1:1"], 1),
        (["predict", "m", "--rest", "--address", "127.0.0.1:1"], 1),
        (["shadow", "report", "--etcd", "127.0.0.1:1"], 1),
        (["play"], 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_a_failure_is_one_line_and_a_code(
    arguments: list[str],
    code: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)

    assert run(arguments) == code
    captured = capsys.readouterr()
    assert captured.err.startswith("turnout: ")
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err


def test_nothing_to_stop_is_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["down", "--data-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no mesh runs in {tmp_path}\n"


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("turnout ")


@pytest.mark.parametrize("group", [[], ["routes"], ["shadow"]], ids=" ".join)
def test_a_group_of_commands_alone_prints_its_help(group: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(group) == 2
    assert capsys.readouterr().err.startswith(f"{' '.join(['Usage: turnout', *group])} [OPTIONS] COMMAND")


def test_a_misused_command_names_its_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["routes", "set"]) == 2
    assert capsys.readouterr().err == "turnout: Missing argument 'model' (see turnout routes set --help)\n"
