"""What of the runtime's environment a worker inherits: what programs need, nothing that is likely to be secret."""

import re
from collections.abc import Iterable, Mapping

_NAMES = frozenset((
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TMP", "TEMP", "LD_LIBRARY_PATH",
    "LD_PRELOAD", "VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR", "GLIBC_TUNABLES", "HF_HOME", "HF_HUB_OFFLINE",
    "TRANSFORMERS_OFFLINE",
))  # fmt: skip
_PREFIXES = (
    "LC_", "PYTHON", "CUDA_", "NVIDIA_", "NCCL_", "ROCR_", "HIP_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_",
    "VECLIB_", "NUMEXPR_", "ORT_", "TF_", "XLA_", "TORCH", "PYTORCH_", "MALLOC_", "COVERAGE_",
)  # fmt: skip
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY|AUTH")
_THREAD_COUNTS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}  # where the operator says nothing else: errors only


def environment(
    environ: Mapping[str, str], threads: int, visible_gpus: str | None = None, also: Iterable[str] = ()
) -> dict[str, str]:
    """What a worker begins with; thread counts are bounded before a framework reads them.

    `also` names what else is inherited, whatever it looks like: NAME, or NAME* for all that begin so.
    """
    named = tuple(also)
    kept = {name: value for name, value in environ.items() if _is_harmless(name) or _is_named(name, named)}
    kept = _QUIET | kept | dict.fromkeys(_THREAD_COUNTS, str(threads)) | {"PYTHONUNBUFFERED": "1"}
    return kept if visible_gpus is None else kept | {"CUDA_VISIBLE_DEVICES": visible_gpus}


def _is_harmless(name: str) -> bool:
    return (name in _NAMES or name.startswith(_PREFIXES)) and not _SECRET.search(name)


def _is_named(name: str, named: tuple[str, ...]) -> bool:
    return any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in named)
