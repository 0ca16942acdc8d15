"""What a caller may do."""

from typing import Literal, get_args

Role = Literal["predict", "manage", "read-metrics"]
ROLES: tuple[Role, ...] = get_args(Role)
