"""Loads wait until what they need is free; what serves goes on meanwhile."""

import signal

from tests.support.mischief import Mischief
from tests.support.runtime_pod import LOADING, READY, Batcher, Pod, output

MIB = 1 << 20
SPEC = {"trusted": True, "limits": {"max_memory_bytes": 600 * MIB}}
WAITS = "waits for 600 MiB of memory: "


async def test_what_does_not_fit_waits_and_says_so_while_what_is_there_serves(pod: Pod) -> None:
    pod.save("sum", "1", Mischief(factor=1))
    pod.save("other", "1", Mischief(factor=2))
    await pod.put("models/sum", SPEC)
    async with pod.running(memory_bytes=str(650 * MIB)):
        old = await pod.instance("sum", "1")
        await pod.put("models/other", SPEC)
        pod.save("sum", "1", Mischief(factor=10))
        inventory = await pod.inventory(
            lambda found: (
                found.models["sum"]["1"].reason.startswith(WAITS)
                and found.models.get("other", {}).get("1")
                and found.models["other"]["1"].reason.startswith(WAITS)
            )
        )
        await pod.process.logged("state_changed", state="ready")
        async with Batcher(old) as batcher:
            before = await batcher.run((1, 2))
        await pod.put("models/sum", {**SPEC, "limits": {"max_memory_bytes": 300 * MIB}})
        new = await pod.until("the new content", lambda: _other(pod, old.digest))
        async with Batcher(new) as batcher:
            after = await batcher.run((1, 2))
        still = pod.find("other", "1", READY)
        await pod.client.delete("models/sum")
        await pod.instance("other", "1")

    swap, load = inventory.models["sum"]["1"], inventory.models["other"]["1"]
    assert (swap.state, swap.update, load.state) == ("READY", "LOADING", "LOADING")
    assert (output(before, "y").tolist(), output(after, "y").tolist()) == ([3], [30])
    assert still is None


def _other(pod: Pod, digest: str) -> object:
    """A ready instance of another digest."""
    return next((e for e in pod.state.instances if e.model == "sum" and e.state == READY and e.digest != digest), None)


async def test_what_was_measured_once_is_asked_for_the_next_time(pod: Pod) -> None:
    pod.save("sum", "1", Mischief())
    await pod.put("models/sum", SPEC)
    async with pod.running():
        await pod.instance("sum", "1")
        pod.process.signal(signal.SIGTERM)
        await pod.process.exit_code()
    async with pod.running(memory_bytes=str(20 * MIB)):
        inventory = await pod.inventory(lambda found: found.models["sum"]["1"].reason.startswith("waits for "))

    words = inventory.models["sum"]["1"].reason.split()
    assert (words[3], words[-3:]) == ("MiB", ["MiB", "are", "free"])
    assert 21 < int(words[2]) < 500


async def test_so_many_load_at_once(pod: Pod) -> None:
    for version in "123":
        pod.save("sum", version, Mischief())
    await pod.put("models/sum", {"trusted": True, "version_policy": {"all": True}})
    seen: list[int] = []
    async with pod.running(loads_at_once="1"):
        await pod.until("all three", lambda: _are_ready(pod, 3, seen))

    assert max(seen) == 1


def _are_ready(pod: Pod, count: int, seen: list[int]) -> bool:
    """Whether so many are; `seen` gets how many processes load now."""
    seen.append(sum(each.state == LOADING and bool(each.pid) for each in pod.state.instances))
    return [each.state for each in pod.state.instances] == [READY] * count
