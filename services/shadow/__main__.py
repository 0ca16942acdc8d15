"""Run the shadow comparator: `python -m services.shadow`, settings TURNOUT_SHADOW_NAME."""

from services.chassis.lifecycle import run
from services.shadow.app import build
from services.shadow.config import ShadowConfig

run("shadow", ShadowConfig, build)
