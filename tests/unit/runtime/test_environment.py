"""What a worker inherits."""

import pytest

from services.runtime.environment import environment


def test_a_worker_inherits_what_programs_need_with_its_own_thread_counts() -> None:
    given = {"PATH": "/bin", "LC_ALL": "C", "CUDA_HOME": "/cuda", "PYTHONPATH": "/p", "OMP_NUM_THREADS": "64"}
    inherited = environment(given, 3)

    assert {name: inherited[name] for name in given} == given | {"OMP_NUM_THREADS": "3"}
    assert inherited["OPENBLAS_NUM_THREADS"] == "3"


@pytest.mark.parametrize(
    "name",
    [
        "TURNOUT_RUNTIME_ETCD_PASSWORD", "AWS_ACCESS_KEY_ID", "GOOGLE_APPLICATION_CREDENTIALS", "DATABASE_URL",
        "HF_TOKEN", "http_proxy", "HTTPS_PROXY", "SSH_AUTH_SOCK", "KUBECONFIG", "TF_API_TOKEN", "PYTHON_PASSWORD",
        "NVIDIA_API_KEY", "TORCH_HUB_SECRET",
    ],
)  # fmt: skip
def test_nothing_that_may_be_secret_is_inherited(name: str) -> None:
    assert name not in environment({name: "x"}, 1)


def test_what_the_operator_names_is_inherited_whatever_it_looks_like() -> None:
    given = {"API_TOKEN": "1", "LICENCE_A": "2", "LICENCE_B": "3", "OTHER": "4"}
    inherited = environment(given, 1, None, ["API_TOKEN", "LICENCE_*"])

    assert given.keys() & inherited.keys() == {"API_TOKEN", "LICENCE_A", "LICENCE_B"}


@pytest.mark.parametrize(("visible", "expected"), [(None, "0,1"), ("", ""), ("MIG-1", "MIG-1")])
def test_gpus_are_hidden_or_chosen_by_the_place(visible: str | None, expected: str) -> None:
    assert environment({"CUDA_VISIBLE_DEVICES": "0,1"}, 1, visible)["CUDA_VISIBLE_DEVICES"] == expected
