"""What a worker refuses before it loads anything."""

from pathlib import Path

import pytest

from services.runtime.backends import CPU_ONLY, BadArtifactError
from services.runtime.job import Job
from services.runtime.worker import load


@pytest.mark.parametrize("framework", sorted(CPU_ONLY))
def test_a_gpu_for_a_framework_of_the_processor_is_refused(framework: str) -> None:
    job = Job(
        id="w", model="m", version="1", digest="d", framework=framework, file=Path("f"), socket=Path("s"),
        device="cuda",
    )  # fmt: skip

    with pytest.raises(BadArtifactError, match=f"asks for a GPU; {framework} models run on the processor"):
        load(job)
