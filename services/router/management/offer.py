"""What a listener offers of management: all of it, or only where it is to be found."""

from dataclasses import dataclass

from services.core.errors import PermissionDeniedError
from services.fleet.routes import RouteStore
from services.router.access.gate import Access
from services.router.management.repository import Repository
from services.router.management.settings import Settings
from services.router.regions import Regions


@dataclass(frozen=True, slots=True)
class Offer:
    """`elsewhere`: where it is offered, for a listener that does not. Regions are callers' own, on every listener."""

    repository: Repository
    settings: Settings
    routes: RouteStore
    regions: Regions
    access: Access
    elsewhere: str = ""

    def check_here(self) -> None:
        """Raise PermissionDeniedError where management is not offered."""
        if self.elsewhere:
            raise PermissionDeniedError(
                f"this listener takes no management calls: {self.elsewhere}; or TURNOUT_ROUTER_PUBLIC_MANAGEMENT=true"
            )
