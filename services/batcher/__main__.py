"""Run the batcher: `python -m services.batcher`, settings TURNOUT_BATCHER_NAME."""

from services.batcher.app import build
from services.batcher.config import BatcherConfig
from services.chassis.lifecycle import run

run("batcher", BatcherConfig, build)
