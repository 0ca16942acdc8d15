"""Whether addresses are free, asked before anything is started."""

from collections.abc import Iterable, Mapping, Sequence

from services.chassis.listening import CannotListenError, probe, split_address
from services.cli.errors import CliError
from services.cli.plan import Planned

_STEPS = range(100, 2000, 100)
_LAST_PORT = 65_535


def check_free(planned: Sequence[Planned], etcd: str | None, offset: int = 0) -> None:
    """Raise CliError naming the first busy address, what wants it, and an offset at which all are free.

    `offset` is the one that the addresses have already.
    """
    wanted = addresses(planned, etcd)
    busy = [address for address in wanted if not is_free(address)]
    if not busy:
        return
    more_offset = next((step for step in _STEPS if all(is_free(_moved(each, step)) for each in wanted)), None)
    free = "N" if more_offset is None else str(offset + more_offset)
    others = f" (and {len(busy) - 1} more)" if len(busy) > 1 else ""
    raise CliError(
        f"{busy[0]}, wanted by {wanted[busy[0]]}, is in use{others}: stop what listens there, or move all ports with"
        f" --port-offset {free}"
    )


def addresses(planned: Iterable[Planned], etcd: str | None) -> dict[str, str]:
    """Address -> what wants it."""
    wanted: Mapping[str, str] = {
        address: f"{each.name} ({setting.removesuffix('_ADDRESS').lower()})"
        for each in planned
        for setting, address in each.addresses.items()
    }
    return {etcd: "etcd", **wanted} if etcd else dict(wanted)


def is_free(address: str) -> bool:
    """Whether this process could listen there now."""
    try:
        probe(address)
    except CannotListenError:
        return False
    return True


def _moved(address: str, offset: int) -> str:
    host, port = split_address(address)
    return f"{host}:{min(port + offset, _LAST_PORT)}"
