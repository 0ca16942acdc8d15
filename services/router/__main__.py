"""`python -m services.router`; settings are TURNOUT_ROUTER_*."""

from services.chassis.lifecycle import run
from services.router.app import build
from services.router.config import RouterConfig

run("router", RouterConfig, build)
