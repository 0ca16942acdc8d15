"""Run the router: `python -m services.router`, settings TURNOUT_ROUTER_NAME."""

from services.chassis.lifecycle import run
from services.router.app import build
from services.router.config import RouterConfig

run("router", RouterConfig, build)
