"""The gate, put together from a router's settings."""

from services.chassis.app import App
from services.router.access.callers import Callers
from services.router.access.credentials import Authenticator
from services.router.access.gate import Access
from services.router.access.jwks import Jwks
from services.router.access.tokens import Tokens
from services.router.config import RouterConfig
from services.router.metrics import RouterMetrics
from services.router.table import Table


def build_gate(config: RouterConfig, app: App, table: Table, metrics: RouterMetrics) -> Access:
    """The gate to the models of `table`; it follows the keys of the issuer whose JWTs are taken, if any."""
    keys = Jwks(config.jwt_keys) if config.jwt_issuer else None
    tokens = Tokens(keys, config.jwt_issuer, config.jwt_audience, config.jwt_leeway_s) if keys else None
    callers = Callers()
    authenticator = Authenticator(callers, tokens, metrics.refused)
    access = Access(table, callers, authenticator, metrics.refused, is_open=config.is_open())
    if keys is not None:
        keys.on_change = authenticator.forget
        app.spawn(keys.run(), "signing-keys")
    app.ops.guard = access.guard_metrics
    if access.is_open:
        app.log.info("open_to_anyone", anonymous=config.anonymous)
    return access
