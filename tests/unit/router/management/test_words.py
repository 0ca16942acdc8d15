"""Triton's words for traces and logs, there and back; what means nothing here is refused by its name."""

import pytest

from services.core.errors import InvalidRequestError
from services.core.settings_spec import LogLevel, TraceSetting, TraceSettings
from services.router.management import log_words, trace_words


@pytest.mark.parametrize("level", ["critical", "error", "warning", "info", "debug"])
def test_a_level_in_tritons_words_is_that_level(level: LogLevel) -> None:
    for before in ("critical", "debug"):
        assert log_words.changed(before, log_words.in_tritons_words(level)) == level  # type: ignore[arg-type]


def test_one_switch_is_changed_where_the_others_allow_it() -> None:
    assert log_words.changed("info", {"log_info": False}) == "warning"
    assert log_words.changed("error", {"log_warning": True}) == "warning"
    assert log_words.changed("debug", {"log_verbose_level": 0}) == "info"
    assert log_words.changed("info", {}) == "info"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"log_error": False}, "log_info is on and log_error is off"),
        ({"log_verbose_level": 1, "log_info": False}, "log_verbose_level is on and log_info is off"),
        ({"log_verbose_level": -1}, "log_verbose_level is -1"),
        ({"log_verbose_level": True}, "log_verbose_level is True"),
        ({"log_format": "default"}, "log_format is 'default'"),
        ({"log_info": 1}, "log_info is 1"),
    ],
)
def test_logs_that_cannot_be_are_refused(given: dict, says: str) -> None:
    with pytest.raises(InvalidRequestError, match=says):
        log_words.changed("info", given)


@pytest.mark.parametrize(("rate", "ratio"), [("0", 0.0), ("1", 1.0), ("4", 0.25), ("1000", 0.001)])
def test_a_rate_is_one_of_so_many(rate: str, ratio: float) -> None:
    setting = trace_words.changed(TraceSetting(enabled=True), {"trace_rate": [rate]})

    assert setting == TraceSetting(enabled=True, ratio=ratio)
    assert trace_words.in_tritons_words(setting)["trace_rate"] == [rate]


def test_a_setting_without_a_value_falls_back() -> None:
    settings = TraceSettings(
        enabled=True, ratio=0.5, models={"a": TraceSetting(ratio=0.1), "b": TraceSetting(enabled=False)}
    )

    assert settings.of("a") == TraceSetting(enabled=True, ratio=0.1)
    assert settings.of("b") == TraceSetting(enabled=False, ratio=0.5)
    assert settings.of("c") == settings.of("") == TraceSetting(enabled=True, ratio=0.5)
    assert trace_words.changed(TraceSetting(enabled=False, ratio=1), {"trace_level": [], "trace_rate": []}) == (
        TraceSetting()
    )


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("trace_level", ["TIMESTAMPS", "TENSORS"]),
        ("trace_rate", ["-1"]),
        ("trace_rate", ["half"]),
        ("trace_rate", ["1", "2"]),
        ("trace_ratio", ["2"]),
        ("trace_ratio", ["nan"]),
        ("trace_count", ["5"]),
        ("trace_mode", ["triton"]),
        ("trace_file", ["x"]),
        ("log_frequency", ["1"]),
        ("colour", ["red"]),
    ],
)
def test_traces_that_cannot_be_are_refused_by_name(name: str, values: list[str]) -> None:
    with pytest.raises(InvalidRequestError, match=name):
        trace_words.changed(TraceSetting(), {name: values})
