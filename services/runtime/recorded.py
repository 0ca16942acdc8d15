"""Recorded requests beside a version's artifact: what its warm-up runs."""

from collections.abc import Collection, Iterator
from pathlib import Path

from services.chassis.recordings import RecordingReader
from services.core.arrays import decode
from services.core.signature import SIGNATURE_NAME, Signature
from services.runtime.backends import Arrays
from services.runtime.examples import Examples, gathered
from services.runtime.job import Job

NAMES = ("warmup.recorded", "warmup.recorded.gz")


def of_file(job: Job, signature: Signature, *, usual: bool = True) -> Examples:
    """The requests for `signature` that the version's folder holds for its warm-up, those that were not refused once.

    `usual`: requests that name no signature are for it.
    """
    names = (job.warm_up.file,) if job.warm_up.file else NAMES
    found = [job.folder / name for name in names if (job.folder / name).is_file()]
    if not found:
        missing = job.warm_up.file
        return Examples((), 1, f"{missing} is not in the version's folder") if missing else Examples()
    return gathered(
        signature,
        _inputs(found[0], {signature.name, *([""] if usual else [])}),
        job.warm_up.max_requests,
        job.filled_inputs,
        job.pad_to,
    )


def _inputs(path: Path, names: Collection[str]) -> Iterator[Arrays]:
    with RecordingReader(path) as records:
        for record in records:
            asked = record.parameters[SIGNATURE_NAME].string_value if SIGNATURE_NAME in record.parameters else ""
            if not record.code and asked in names:
                yield {
                    tensor.name: decode(tensor.datatype, tuple(tensor.shape), tensor.data)
                    for tensor in (*record.inputs, *record.filled)
                }
