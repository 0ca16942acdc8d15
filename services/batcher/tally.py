"""What one model version's batcher counts: plain integers, read when metrics are scraped."""

from bisect import bisect_left

from services.core.stages import REMOTE

BATCH_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SERVICE_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
REFUSALS = ("queue_full", "queue_bytes", "deadline", "quarantine", "not_ready", "invalid")
QUEUE_FULL, QUEUE_BYTES, LATE, QUARANTINED, NOT_READY, INVALID = range(len(REFUSALS))
SHED = ("evicted", "late", "queue_timeout")  # of those who were let in
EVICTED, HOPELESS, TIMED_OUT = range(len(SHED))
PADDING_SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 0.9)
PLACES = ("queue", "running")  # where a request was when its caller or its time left it


class Histogram:
    """Counts by upper bound, and the sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count


class PaddingTally:
    """What was filled up so far. A position is one row's place along dimension 1, whatever lies behind it."""

    __slots__ = ("filled", "real", "shares")

    def __init__(self) -> None:
        self.real = 0  # positions that callers sent
        self.filled = 0  # positions beside them
        self.shares = Histogram(PADDING_SHARES)  # of the filled ones in each batch


class Size:
    """Batches of one number of rows that ran, and where their time went; of those that could be told apart."""

    __slots__ = ("compute_ns", "count", "input_ns", "output_ns")

    def __init__(self) -> None:
        self.count = 0
        self.input_ns = 0
        self.compute_ns = 0
        self.output_ns = 0


class Tally:
    """Counters of one model version."""

    __slots__ = (
        "by_code",
        "by_size",
        "cancelled",
        "deaths",
        "expired",
        "failed_ns",
        "raised",
        "ran_ns",
        "refused",
        "search_launches",
        "service_s",
        "shed",
        "stages_ns",
        "streamed",
        "suspect_launches",
    )

    def __init__(self) -> None:
        self.by_code = [0] * 17  # answers by gRPC status
        self.refused = [0] * len(REFUSALS)
        self.cancelled = [0, 0]
        self.expired = [0, 0]
        self.stages_ns = [0] * len(REMOTE)  # summed over requests that were answered well
        self.shed = [0] * len(SHED)
        self.by_size: dict[int, Size] = {}  # by the rows of a batch
        self.failed_ns = 0  # from arrival to outcome, summed over requests that were let in and not answered well
        self.ran_ns = 0  # when the last batch was back, by the batcher's clock
        self.service_s = Histogram(SERVICE_S)
        self.raised = 0  # batches
        self.search_launches = 0
        self.suspect_launches = 0
        self.streamed = 0  # answers of decoupled models
        self.deaths = 0  # workers lost with batches on them

    def ran(self, rows: int, took_ns: int, now_ns: int) -> None:
        """A batch of `rows` rows is back, and had a worker to itself for `took_ns`."""
        size = self.by_size.get(rows)
        if size is None:
            size = self.by_size[rows] = Size()
        size.count += 1
        self.ran_ns = now_ns
        self.service_s.observe(took_ns / 1e9)

    @property
    def executions(self) -> int:
        """Batches that ran."""
        return sum([size.count for size in list(self.by_size.values())])  # scraped on another thread

    @property
    def rows(self) -> int:
        """Rows that ran."""
        return sum([rows * size.count for rows, size in list(self.by_size.items())])

    @property
    def batch_rows(self) -> Histogram:
        """Batches that ran, by their rows."""
        histogram = Histogram(BATCH_ROWS)
        for rows, size in list(self.by_size.items()):  # scraped on another thread
            histogram.observe(rows, size.count)
        return histogram

    def answered(self, count: int, queue_ns: int, middle_ns: tuple[int, ...], scatter_ns: int) -> None:
        """`count` members of one batch got their rows; `middle_ns` are the stages that they have in common."""
        self.by_code[0] += count
        sums = self.stages_ns
        sums[0] += queue_ns
        for stage, nanoseconds in enumerate(middle_ns, 1):
            sums[stage] += nanoseconds * count
        sums[6] += scatter_ns

    def told_apart(self, rows: int, middle_ns: tuple[int, ...], scatter_ns: int) -> None:
        """The answers of a batch of `rows` rows were written in `scatter_ns`."""
        size = self.by_size[rows]
        assemble_ns, wait_ns, h2d_ns, compute_ns, d2h_ns = middle_ns
        size.input_ns += assemble_ns + wait_ns + h2d_ns
        size.compute_ns += compute_ns
        size.output_ns += d2h_ns + scatter_ns
