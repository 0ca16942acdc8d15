"""Run the runtime: `python -m services.runtime`, settings TURNOUT_RUNTIME_NAME."""

from services.chassis.lifecycle import run
from services.runtime.app import build
from services.runtime.config import RuntimeConfig

run("runtime", RuntimeConfig, build)
