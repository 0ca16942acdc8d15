"""A caller as a router knows it: its rights, and what it has used of its limits."""

import sys

from services.core.caller_spec import CallerSpec, fits
from services.core.errors import QuotaError
from services.core.model_spec import Access
from services.core.roles import Role
from services.router.access.limits import Bucket, seconds, share, share_of_places

_BUSY_S = 0.05  # until one of a caller's own requests may have ended


class Rights:
    """What one value of callers/CALLER allows; another value makes other rights, so these may be remembered by."""

    __slots__ = ("name", "spec")

    def __init__(self, name: str, spec: CallerSpec) -> None:
        self.name = name
        self.spec = spec

    def has(self, role: Role) -> bool:
        return role in self.spec.roles

    def allow(self, role: Role, model: str, access: Access | None) -> bool:
        """Whether the caller may do `role` with `model`, whose own `access` may narrow it."""
        if not self.has(role) or not self.spec.covers(model):
            return False
        if access is None or access.callers is None:
            return True
        return any(role in roles and fits((pattern,), self.name) for pattern, roles in access.callers.items())


class Caller:
    """Outlives its rights: an edit changes what it may, and forgets nothing of what it has used."""

    __slots__ = ("in_flight", "is_metered", "limits", "most", "name", "requests", "rights", "routers", "rows")

    def __init__(self, name: str, spec: CallerSpec, routers: int) -> None:
        self.name = name
        self.in_flight = 0
        self.requests = Bucket()
        self.rows = Bucket()
        self.follow(spec, routers)

    def follow(self, spec: CallerSpec, routers: int) -> None:
        """Go by `spec` and by a share of one in `routers` from now on."""
        self.rights = Rights(self.name, spec)
        self.limits = limits = spec.limits
        # What can be known only of a request that was checked.
        self.is_metered = limits.rows_per_s is not None or limits.max_priority is not None
        self.share_with(routers)

    def share_with(self, routers: int) -> None:
        """Of each limit, one in so many from now on."""
        limits = self.limits
        self.routers = routers
        self.requests.follow(share(limits.requests_per_s, routers), limits.burst_s)
        self.rows.follow(share(limits.rows_per_s, routers), limits.burst_s)
        self.most = share_of_places(limits.max_concurrency, routers) or sys.maxsize

    def take_place(self) -> None:
        """Count one more request in flight; `in_flight` is counted down by who ends it. Raises QuotaError."""
        if self.in_flight >= self.most:
            raise QuotaError(
                f"caller {self.name} has {self.in_flight} requests in flight, the most it may"
                f" ({self._said(self.limits.max_concurrency, 'in flight')})",
                retry_after_s=_BUSY_S,
            )
        self.in_flight += 1

    def take_request(self, now_ns: int) -> None:
        """Raises QuotaError."""
        if wait_ns := self.requests.take(1, now_ns):
            raise self._over(self.limits.requests_per_s, "requests/s", wait_ns)

    def take_rows(self, rows: int, now_ns: int) -> None:
        """Raises QuotaError."""
        if wait_ns := self.rows.take(rows, now_ns):
            raise self._over(self.limits.rows_per_s, "rows/s", wait_ns)

    def _over(self, limit: float | None, unit: str, wait_ns: float) -> QuotaError:
        return QuotaError(
            f"caller {self.name} is over its limit of {self._said(limit, unit)}", retry_after_s=seconds(wait_ns)
        )

    def _said(self, limit: float | None, unit: str) -> str:
        shared = f", shared by {self.routers} routers" if self.routers > 1 else ""
        return f"{limit or 0:g} {unit}{shared}"
