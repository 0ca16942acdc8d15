from services.core import stages


def test_the_stages_come_in_the_order_of_a_requests_way() -> None:
    assert stages.STAGES == (
        "parse",
        "auth",
        "route",
        "features",
        "link",
        "queue",
        "assemble",
        "worker_wait",
        "h2d",
        "compute",
        "d2h",
        "scatter",
        "serialize",
    )


def test_no_stage_is_the_total() -> None:
    assert stages.TOTAL not in stages.STAGES
    assert len(set(stages.STAGES)) == len(stages.STAGES)
