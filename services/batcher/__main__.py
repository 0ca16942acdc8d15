"""python -m services.batcher."""

from services.batcher.app import build
from services.batcher.config import BatcherConfig
from services.chassis.lifecycle import run

run("batcher", BatcherConfig, build)
