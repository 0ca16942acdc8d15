"""What is known of a request only once it was checked: its rows, and the priority that it would have."""

from time import perf_counter_ns

from services.router.access.caller import Caller
from services.router.flight import Flight

PRIORITY = "priority"


def meter(flight: Flight, caller: Caller) -> None:
    """Take the request's rows from its caller's limit, and keep its priority within it. Raises QuotaError."""
    ceiling = caller.limits.max_priority
    if ceiling is not None:
        _lower(flight, ceiling)
    caller.take_rows(flight.rows, perf_counter_ns())


def _lower(flight: Flight, ceiling: int) -> None:
    """Give the request the priority `ceiling` where it would have a higher one, which is a smaller number."""
    inference = flight.inference
    asked = int(inference.parameters.get(PRIORITY, 0))
    levels, default = flight.target.priority_levels, flight.target.default_priority
    level = asked if 1 <= asked <= (levels or asked) else default
    if level >= ceiling:
        return
    allowed = min(ceiling, levels) if levels else ceiling
    parameters = {**inference.parameters, PRIORITY: allowed}
    flight.inference = inference._replace(inputs=flight.inputs(), parameters=parameters)
    flight.template = None
