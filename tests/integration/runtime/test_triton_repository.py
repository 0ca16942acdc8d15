"""A Triton model repository, served as it is."""

from services.core.batching_spec import Batching
from tests.support.mischief import Mischief
from tests.support.runtime_pod import Pod


async def test_config_pbtxt_holds_for_what_the_spec_leaves_open(pod: Pod) -> None:
    for model in ("plain", "chain"):
        pod.save(model, "1", Mischief())
        (pod.models / model / "old").mkdir()
    (pod.models / "plain" / "config.pbtxt").write_text(
        'name: "plain" max_batch_size: 8 dynamic_batching { preferred_batch_size: 4 } response_cache { enable: true }'
        " instance_group { count: 2 }"
    )
    (pod.models / "chain" / "config.pbtxt").write_text('platform: "ensemble"')
    for model in ("plain", "chain"):
        await pod.put(f"models/{model}", {"trusted": True})
    async with pod.running():
        instance = await pod.instance("plain", "1")
        await pod.until("two instances", lambda: len(pod.state.instances) == 2)
        inventory = await pod.inventory(lambda inventory: inventory.models.get("chain", {}).get("1"))
        ignored = await pod.process.logged("not_versions", model="plain")
        (pod.models / "plain" / "config.pbtxt").unlink()
        await pod.until("one instance", lambda: len(pod.state.instances) == 1)
        without = pod.state.instances[0].batching

    assert Batching.parse(instance.batching) == Batching(max_batch_size=8, preferred_batch_size=(4,))
    assert without == b""
    assert inventory.notes["plain"] == ("response_cache: answers are not cached",)
    assert inventory.models["chain"]["1"].state == "UNAVAILABLE"
    assert inventory.models["chain"]["1"].reason.startswith("config.pbtxt: ensembles are not run")
    assert ignored["names"] == ["old"]
