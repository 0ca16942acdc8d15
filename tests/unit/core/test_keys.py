import pytest

from services.core import keys


def test_an_endpoints_key_holds_its_parts() -> None:
    key = keys.endpoint("digits", "3", "pod-0-a1b2")

    assert key == "endpoints/digits/3/pod-0-a1b2"
    assert keys.parse_endpoint(key) == keys.EndpointKey("digits", "3", "pod-0-a1b2")


@pytest.mark.parametrize(
    "key",
    [
        "",
        "endpoints/",
        "endpoints/a",
        "endpoints/a/1",
        "endpoints/a/1/",
        "endpoints//1/r",
        "endpoints/a/1/r/x",
        "a/1/r",
    ],
)
def test_a_key_of_another_shape_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="expected endpoints/MODEL/VERSION/REPLICA") as caught:
        keys.parse_endpoint(key)

    assert str(caught.value) == f"{key}: expected endpoints/MODEL/VERSION/REPLICA"


def test_services_and_their_status_lie_under_name_and_instance() -> None:
    assert keys.service("router", "host-1-ab") == "services/router/host-1-ab"
    assert keys.status("router", "host-1-ab", "routes") == "status/router/host-1-ab/routes"
