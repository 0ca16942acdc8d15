"""The arenas of one process: how large each may get, and what became of the tensors that wanted to go by one."""

from collections.abc import Iterator
from pathlib import Path

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.chassis.arena.layout import FOLDER
from services.chassis.arena.lender import Counts, Lender, LendingLink


class Arenas(Collector):
    """Lenders for links, and their metrics. `limit_bytes`: of each link's arena; 0 = tensors travel as bytes."""

    def __init__(self, limit_bytes: int, folder: Path = FOLDER) -> None:
        self.counts = Counts()
        self._limit_bytes = limit_bytes
        self._folder = folder
        self._lenders: set[Lender] = set()

    def lender(self, link: LendingLink) -> Lender | None:
        """For a link to a peer on this host; None when that is switched off."""
        if not self._limit_bytes:
            return None
        lender = Lender(link, self._folder, self._limit_bytes, self.counts, self._lenders.discard)
        self._lenders.add(lender)
        return lender

    def collect(self) -> Iterator[Metric]:
        """Read when scraped."""
        counts, lenders = self.counts, list(self._lenders)  # scraped on another thread
        yield CounterMetricFamily(
            "turnout_shared_memory_tensors", "Large tensors sent through shared memory.", counts.lent
        )
        family = CounterMetricFamily(
            "turnout_shared_memory_fallbacks",
            "Large tensors sent as bytes to a peer on this host, by reason.",
            labels=["reason"],
        )
        for reason, count in (("full", counts.full), ("unproven", counts.unproven)):
            family.add_metric([reason], count)
        yield family
        yield GaugeMetricFamily(
            "turnout_shared_memory_blocks", "Blocks that peers have not given back.", sum([x.blocks for x in lenders])
        )
        yield GaugeMetricFamily(
            "turnout_shared_memory_bytes", "Shared memory reserved.", sum([x.reserved_bytes for x in lenders])
        )
