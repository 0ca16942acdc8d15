"""What a shadow comparator is told when it starts."""

from pydantic import Field

from services.chassis.config import Address, ServiceConfig


class ShadowConfig(ServiceConfig):
    """A mirror is held from its arrival until its candidate's answer was compared."""

    link_address: Address = "127.0.0.1:8131"  # links of routers, and gRPC turnout.v1.Shadow/Report
    link_socket: str = ""  # the same as a Unix socket, for routers on this host; empty = under data_dir
    max_pending: int = Field(default=2048, ge=1)  # mirrors held; beyond, they are dropped
    max_pending_bytes: int = Field(default=128 << 20, ge=1)  # of them; each counts twice: its request, its answer
    max_running: int = Field(default=32, ge=1)  # requests in flight per candidate version
    candidate_deadline_s: float = Field(default=5, gt=0)  # of one request; and the longest wait before it is sent
    worst_examples: int = Field(default=10, ge=0, le=1000)  # kept per output
    max_pairs: int = Field(default=200, ge=1)  # (model, served, candidate) counted at once
    nice: int = Field(default=10, ge=0, le=19)  # how far behind other processes of this host it stands for the CPU
