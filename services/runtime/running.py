"""How a backend is run, by what it can make use of."""

from collections.abc import AsyncIterator, Callable, Collection, Iterator

from numpy.typing import NDArray

from services.runtime.backends import Arrays, Backend, Run

RunBatch = Callable[[Arrays, Collection[str], float | None], dict[str, NDArray]]
Answers = Iterator[dict[str, NDArray]] | AsyncIterator[dict[str, NDArray]]


def named_run(backend: Backend, name: str) -> Run:
    """What runs inputs of the signature `name`; empty = the usual one."""
    runs = getattr(backend, "runs", None)  # of a ManyBackend
    run: Run = runs()[name] if name and callable(runs) else backend.run
    return run


def run_of(backend: Backend, name: str = "") -> RunBatch:
    """What runs one batch: its inputs, the outputs that are wanted, and the seconds that anybody waits for them.

    `name`: of a signature that is not the usual one.
    """
    run = named_run(backend, name)
    if name:
        return lambda inputs, _outputs, _left_s: run(inputs)
    run_only = getattr(backend, "run_only", None)  # of a ChoosyBackend
    run_within = getattr(backend, "run_within", None)  # of a PatientBackend
    if run_within is not None:
        within: RunBatch = run_within
        return within
    if run_only is not None:
        return lambda inputs, outputs, _left_s: run_only(inputs, outputs)
    return lambda inputs, _outputs, _left_s: run(inputs)


def stream_of(backend: Backend) -> Callable[[Arrays], Answers]:
    """What begins the answers to one request, of a StreamingBackend."""
    begin: Callable[[Arrays], Answers] = backend.stream  # type: ignore[attr-defined]
    return begin
