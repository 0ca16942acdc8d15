"""What a batcher is told when it starts."""

from pathlib import Path

from pydantic import Field

from services.chassis.config import Address, ServiceConfig


class BatcherConfig(ServiceConfig):
    """Settings of one batcher; how models are batched comes from etcd."""

    link_address: Address = "127.0.0.1:8101"  # host:port that routers dial
    advertise_address: str = ""  # what endpoints/ says instead, when link_address is not what others can reach
    run_dir: Path = Path(".turnout/run/pod-0")  # shared with the pod's runtime
    shared_memory_bytes: int = Field(default=256 << 20, ge=0)  # for large tensors to each worker; 0 = none
    pod: str = Field(default="pod-0", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    device_slots: int = Field(default=0, ge=0)  # batches of all models at once; 0 = twice the processor cores
