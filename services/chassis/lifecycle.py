"""From the environment to exit: run() is the whole main program of every service."""

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, NoReturn, TypeVar

import uvloop

from services.chassis import logs, process
from services.chassis.app import App, make_instance
from services.chassis.arena import reap
from services.chassis.config import BadConfigError, ServiceConfig
from services.chassis.listening import CannotListenError
from services.chassis.ops import OpsServer

EXIT_FAILED, EXIT_BAD_CONFIG, EXIT_CANNOT_LISTEN = 1, 2, 3
_HANG_S = 5.0  # after drain_s: then the process ends, whatever hangs
_LEAVE_S = 2.0  # after drain_s: to leave build()
_CANCEL_S = 0.5
_CLOSE_S = 1.0  # for each of what is closed last

C = TypeVar("C", bound=ServiceConfig)
Build = Callable[[C, App], AbstractAsyncContextManager[None]]


def run(service: str, config_class: type[C], build: Build[C]) -> NoReturn:
    """Load the settings, serve until SIGTERM, SIGINT or a crash, drain, exit.

    Exit codes: 0 stopped, 1 failed, 2 settings are wrong, 3 an address is taken; 2 and 3 say why in a line each.
    """
    sys.exit(_run(service, config_class, build))


def _run(service: str, config_class: type[C], build: Build[C]) -> int:
    parent = os.getppid()
    prefix = f"TURNOUT_{service.upper()}_"
    try:
        config = config_class.load(prefix)
        if config.parent_death:
            process.die_with_parent(parent)
        process.raise_file_limit()
        process.keep_freed_memory()
        return uvloop.run(serve(service, config, build))
    except BadConfigError as error:
        print(error, file=sys.stderr)  # noqa: T201 - there are no logs yet
        return EXIT_BAD_CONFIG
    except CannotListenError as error:
        print(f"{error}{_setting(config, prefix, error.address)}", file=sys.stderr)  # noqa: T201 - for a person
        return EXIT_CANNOT_LISTEN


def _setting(config: ServiceConfig, prefix: str, address: str) -> str:
    names = [name for name, value in config if value == address]
    return f"; {prefix}{names[0].upper()} sets it" if names else ""


async def serve(service: str, config: C, build: Build[C]) -> int:
    """Run one service to its end on the running loop; gives the exit code. Raises CannotListenError, BadConfigError."""
    instance = config.instance or make_instance()
    logs.set_up(config.log_level, service=service, instance=instance)
    app = App(service, config, instance)
    reap()
    ops = app.ops
    _stop_on_signals(app)
    background: list[asyncio.Task[None]] = []
    try:
        metrics = await ops.start(config.metrics_address)
        app.log.info("listening", name="metrics", address=metrics)
        app.announce(metrics=metrics)
        background += [app.own(run, name) for run, name in _background(app)]
        code = await _live(app, config, build)
    finally:
        await _close(app, ops, background)
    app.log.info("stopped", exit_code=code)
    return code


def _background(app: App) -> list[tuple[Coroutine[Any, Any, None], str]]:
    return [
        (app.heartbeat.run(), "heartbeat"),
        (app.registration.run(), "registration"),
        (app.watch_readiness(), "readiness"),
        (app.certificates.watch(app.config.certificate_check_s), "certificates"),
    ]


async def _live(app: App, config: C, build: Build[C]) -> int:
    """From build() to its end, in one task: what build() enters, it leaves where it entered."""
    life = asyncio.create_task(_inhabit(app, config, build), name="life")
    stop = asyncio.create_task(app.stop.wait(), name="stop")
    await asyncio.wait({life, stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    app.stop.set()
    _end_anyway_after(config.drain_s + _HANG_S, app)
    if not app.is_built:
        life.cancel()
    done, _ = await asyncio.wait({life}, timeout=config.drain_s + _LEAVE_S)
    if not done:
        app.log.error("stop_overran", allowed_s=config.drain_s + _LEAVE_S)
        life.cancel()
        await asyncio.wait({life}, timeout=_CANCEL_S)
        return EXIT_FAILED
    return _code(app, None if life.cancelled() else life.exception())


async def _inhabit(app: App, config: C, build: Build[C]) -> None:
    async with build(config, app):
        app.is_built = True
        app.refresh()
        gc.collect()
        gc.freeze()  # what start-up made stays: later collections need not look at it
        await app.stop.wait()
        await app.drain()
        await app.cancel_tasks()
        app.log.info("drained")


def _code(app: App, error: BaseException | None) -> int:
    """The exit code; `error` is what build() raised. Raises it when it is the operator's to mend."""
    if error is None:
        return EXIT_FAILED if app.has_failed else 0
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, OSError):
        error = CannotListenError.from_os(error) or error
    if isinstance(error, CannotListenError | BadConfigError):
        raise error
    app.log.error("service_failed", exc_info=error)
    return EXIT_FAILED


async def _close(app: App, ops: OpsServer, background: list[asyncio.Task[None]]) -> None:
    """Take this process out of etcd, then let go of everything, in bounded time."""
    await app.cancel_tasks()
    steps: dict[str, Coroutine[Any, Any, None]] = {
        "registration": app.registration.close(_CLOSE_S),
        "etcd": app.etcd.close(),
        "traces": asyncio.to_thread(app.traces.close, _CLOSE_S),
        "ops": ops.close(),
    }
    for name, step in steps.items():
        try:
            await asyncio.wait_for(step, _CLOSE_S)
        except Exception as error:  # noqa: BLE001 - the process ends either way; its lease lapses by itself
            app.log.warning("close_failed", step=name, error=repr(error))
    for task in background:
        task.cancel()
    await asyncio.gather(*background, return_exceptions=True)


def _stop_on_signals(app: App) -> None:
    """SIGTERM and SIGINT ask for a drain; the same signal once more ends the process at once."""
    loop = asyncio.get_running_loop()

    def stop(signum: signal.Signals) -> None:
        loop.remove_signal_handler(signum)
        signal.signal(signum, signal.SIG_DFL)
        app.log.info("stopping", signal=signum.name)
        app.stop.set()

    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop, signum)


def _end_anyway_after(seconds: float, app: App) -> None:
    """End the process after `seconds`, from a thread: a hung loop or a stuck thread must not keep it."""

    def end() -> None:
        app.log.error("stop_hung", allowed_s=seconds, threads=[thread.name for thread in threading.enumerate()])
        os._exit(EXIT_FAILED)

    watchdog = threading.Timer(seconds, end)
    watchdog.daemon = True
    watchdog.start()
