"""What a caller may do."""

from typing import Literal, get_args

# predict: inference, and what models say of themselves. manage: load, unload, settings, routes. read-metrics: /metrics
# and statistics. internal: headers and parameters named x-turnout-… count, which others' requests lose.
Role = Literal["predict", "manage", "read-metrics", "internal"]
ROLES: tuple[Role, ...] = get_args(Role)
