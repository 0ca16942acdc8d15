"""What tests of a puppet pod do again and again."""

from services.core.errors import UNAVAILABLE
from tests.support.puppet_pod import PuppetPod


async def occupy(pod: PuppetPod, slots: int = 1) -> list[int]:
    """Keep every slot of the first worker busy with one request; their numbers."""
    worker = pod.workers[0]
    worker.holds = True
    numbers = [pod.router.send(0) for _ in range(slots)]
    await worker.until(lambda: len(worker.held) == slots)
    return numbers


async def settled(pod: PuppetPod) -> None:
    """Everything sent so far has been seen: what comes after it on the link was answered."""
    assert await pod.router.codes(pod.router.send(1, model="nobody")) == [UNAVAILABLE]
