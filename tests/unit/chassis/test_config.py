from pathlib import Path

import pytest
from pydantic import Field

from services.chassis.config import BadConfigError, ServiceConfig

PREFIX = "TURNOUT_FEATURE_PROXY_"


class ProxyConfig(ServiceConfig):
    size_rows: int = Field(default=8, ge=1)
    wait_s: float = 1.5


def load(environ: dict[str, str]) -> ProxyConfig:
    return ProxyConfig.load(PREFIX, environ)


def test_without_settings_the_defaults_hold() -> None:
    assert load({"HOME": "/root", "TURNOUT_ROUTER_WAIT_S": "3"}) == ProxyConfig()


def test_the_environment_sets_typed_fields() -> None:
    config = load({f"{PREFIX}SIZE_ROWS": "32", f"{PREFIX}PARENT_DEATH": "true", f"{PREFIX}DATA_DIR": "/srv/x"})

    assert (config.size_rows, config.parent_death, config.data_dir) == (32, True, Path("/srv/x"))


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "turnout.toml"
    path.write_text("[feature_proxy]\nsize_rows = 2\nwait_s = 0.5\n[router]\nnot_ours = 1\n")

    config = load({"TURNOUT_CONFIG": str(path), f"{PREFIX}SIZE_ROWS": "4"})

    assert (config.size_rows, config.wait_s) == (4, 0.5)


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("SIZE_ROW", "4", "unknown setting; known are "),
        ("SIZE_ROWS", "four", "valid integer"),
        ("SIZE_ROWS", "0", "greater than or equal to 1"),
        ("WAIT_S", "soon", "valid number"),
        ("DRAIN_S", "-1", "greater than or equal to 0"),
        ("LOG_LEVEL", "loud", "'debug', 'info'"),
        ("METRICS_ADDRESS", "8102", "'8102' is not host:port"),
        ("METRICS_ADDRESS", "localhost:http", "'localhost:http' is not host:port"),
        ("METRICS_ADDRESS", "localhost:70000", "'localhost:70000' is not host:port"),
    ],
)
def test_a_wrong_setting_is_named_with_what_would_be_right(setting: str, value: str, said: str) -> None:
    with pytest.raises(BadConfigError) as caught:
        load({PREFIX + setting: value})

    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{PREFIX}{setting}: ")
    assert said in line


def test_all_faults_are_said_at_once_one_line_each() -> None:
    with pytest.raises(BadConfigError) as caught:
        load({f"{PREFIX}SIZE_ROWS": "x", f"{PREFIX}WAIT_S": "y", f"{PREFIX}COLOUR": "red"})

    names = sorted(line.partition(":")[0] for line in str(caught.value).splitlines())
    assert names == [f"{PREFIX}COLOUR", f"{PREFIX}SIZE_ROWS", f"{PREFIX}WAIT_S"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[feature_proxy]\ncolour = 1\n", f"{PREFIX}COLOUR: "),
        ("feature_proxy = 3\n", "feature_proxy is not a table"),
        ("[feature_proxy\n", "TURNOUT_CONFIG="),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "turnout.toml"
    path.write_text(text)

    with pytest.raises(BadConfigError, match=said):
        load({"TURNOUT_CONFIG": str(path)})


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadConfigError, match=r"TURNOUT_CONFIG=.*none\.toml"):
        load({"TURNOUT_CONFIG": str(tmp_path / "none.toml")})


def test_a_password_never_shows_in_the_settings_text() -> None:
    assert "secret" not in repr(load({f"{PREFIX}ETCD_PASSWORD": "secret"}))
