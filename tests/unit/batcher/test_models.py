"""models/ as the batcher takes it."""

from services.batcher.models import Models
from services.chassis.etcd import Change
from services.core.registry import ConfigStatus


def test_a_bad_value_never_takes_effect_and_is_said() -> None:
    said: list[ConfigStatus] = []
    models = Models(said.append)
    models.apply([Change("models/a", b'{"batching": {"max_batch_size": 7}}', 3)])
    models.apply([Change("models/a", b'{"batching": {"max_batch_size": -7}}', 4), Change("models/!", b"{}", 5)])

    assert models.spec("a", "1").batching.max_batch_size == 7
    assert said[-1].accepted == {"models/a": 3}
    assert set(said[-1].refused) == {"models/a", "models/!"}


def test_a_good_value_takes_the_refusal_back_and_a_deleted_one_leaves_the_defaults() -> None:
    said: list[ConfigStatus] = []
    models = Models(said.append)
    models.apply([Change("models/a", b"nonsense", 3)])
    models.apply([Change("models/a", b'{"versions": {"2": {"batching": {"max_batch_size": 9}}}}', 4)])

    assert said[-1] == ConfigStatus(revision=4, accepted={"models/a": 4})
    assert [models.spec("a", version).batching.max_batch_size for version in "12"] == [64, 9]

    models.apply([Change("models/a", None, 5)])

    assert models.spec("a", "2").batching.max_batch_size == 64
