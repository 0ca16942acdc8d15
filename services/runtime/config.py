"""What a runtime is told when it starts."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from services.chassis.config import ServiceConfig

_LONGEST_RUN_DIR_BYTES = 60  # a Unix socket's path may have 107 bytes, an instance's file takes up to 45


class RuntimeConfig(ServiceConfig):
    run_dir: Path = Path(".turnout/run/pod-0")  # sockets of this pod; one runtime each
    repository: str = ""  # URL or path of the model repository of models that name none
    pool: str = Field(default="default", min_length=1)  # models whose placement.pool is this are loaded
    cache_dir: Path | None = None  # copies of artifacts, by digest; None = below data_dir
    scan_s: float = Field(default=1.0, gt=0, le=60)  # between two looks at the repository
    remote_scan_s: float = Field(
        default=10.0, ge=1, le=3600
    )  # the same for s3://, gs:// and http(s)://, give or take 20%
    fetch_timeout_s: float = Field(default=3600, gt=0)  # of one version from such a repository
    links_outside: bool = False  # may links in a local repository lead out of it?
    settle_s: float = Field(default=1.0, ge=0, le=600)  # a version untouched for this long is a whole one
    load_timeout_s: float = Field(default=120, gt=0)
    loads_at_once: int = Field(default=4, ge=1, le=64)  # more wait; restarts of what was ready do not
    # Added to the nice value of a worker that loads while callers have another one; not where CAP_SYS_NICE is missing.
    load_nice: int = Field(default=5, ge=0, le=19)
    memory_bytes: int | None = Field(default=None, ge=1 << 20)  # of all workers; null = what the host or its group has
    # A worker that is let go answers what still comes until its links close, or nothing came for this long.
    quiet_s: float = Field(default=1.0, gt=0, le=60)
    # Of a framework inside one worker; 0 = its share of the cores: all but one, by as many instances as the pod has.
    worker_threads: int = Field(default=0, ge=0, le=1024)

    worker_user: str = ""  # name or number of the user that workers run as; empty = the runtime's own; needs root
    # Their group; empty = the user's own. With the batcher's group, large tensors go to them through shared memory.
    worker_group: str = ""
    # Variables that workers inherit besides the harmless ones, comma-separated; NAME* = all that begin so.
    worker_environment: str = ""
    worker_cgroups: bool = True  # limits held by the kernel, where it lets this process make control groups

    @model_validator(mode="after")
    def _sockets_fit(self) -> Self:
        length = len(str(self.run_dir.absolute()).encode())
        if length > _LONGEST_RUN_DIR_BYTES:
            raise ValueError(
                f"run_dir {self.run_dir} has {length} bytes; sockets leave room for {_LONGEST_RUN_DIR_BYTES}"
            )
        return self

    def artifacts_dir(self) -> Path:
        return self.cache_dir or self.data_dir / "artifacts" / self.run_dir.name
