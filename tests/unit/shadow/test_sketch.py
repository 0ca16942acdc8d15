import pytest

from services.shadow.sketch import Sketch


def sketch_of(*durations_s: float) -> Sketch:
    sketch = Sketch()
    for duration in durations_s:
        sketch.observe(duration)
    return sketch


def test_an_empty_sketch_gives_zeros() -> None:
    empty = Sketch()

    assert (empty.count, empty.mean_s(), empty.quantile_s(0.5), empty.at_most([1.0])) == (0, 0.0, 0.0, [0])


def test_quantiles_are_off_by_at_most_two_percent() -> None:
    sketch = sketch_of(*(number / 1000 for number in range(1, 1001)))

    assert sketch.quantile_s(0.5) == pytest.approx(0.5, rel=0.021)
    assert sketch.quantile_s(0.99) == pytest.approx(0.99, rel=0.021)
    assert sketch.mean_s() == pytest.approx(0.5005)


def test_durations_beyond_the_range_stay_in_the_outermost_buckets() -> None:
    sketch = sketch_of(0.0, -1.0, 1e9)

    assert sketch.count == 3
    assert sketch.quantile_s(0.5) == pytest.approx(1e-7, rel=0.05)
    assert sketch.quantile_s(1.0) == pytest.approx(1e4, rel=0.05)


def test_buckets_stay_few_whatever_comes() -> None:
    sketch = sketch_of(*(1.01**exponent for exponent in range(-2000, 2000)))

    assert len(sketch._buckets) < 700


def test_at_most_counts_up_to_each_bound() -> None:
    assert sketch_of(0.001, 0.02, 0.02, 3.0).at_most([0.01, 0.1, 1.0, 10.0]) == [1, 3, 3, 4]
