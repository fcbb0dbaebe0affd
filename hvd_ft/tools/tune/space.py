"""The settings that `hvdft tune` tries: those that can matter to a job on some hosts."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from hvd_ft.job.binding import BIND_TO
from hvd_ft.job.settings import ENDPOINT_CHOICES, TOPOLOGIES
from hvd_ft.launcher.tuning_file import is_set
from hvd_ft.members.hosts import Host
from hvd_ft.mpi.environment import mpi_environment
from hvd_ft.mpi.fabric import choose_provider, fast_devices
from hvd_ft.mpi.variables import asked_binding
from hvd_ft.tools.tune.search import Knob

# Of those that libfabric offers, the ones between hosts over which Intel MPI can run alone. `mlx`
# has no endpoints, so there the leaders' are one (mpi/capabilities.py).
_PROVIDERS = ("tcp", "psm2", "psm3", "verbs;ofi_rxm", "efa", "mlx")
_SEGMENTS = ("32K", "64K", "128K", "256K", "512K", "1M")
_NODE_SEGMENTS = _SEGMENTS[:-1]
_NODE_WINDOWS = ("512K", "1M", "2M", "4M")
_NODES_BELOW, _BELOW = ("2", "4", "8", "16", "32", "64"), "32"
_ORDERED = frozenset(
    (
        *("connections", "window", "segment", "node-segment", "node-window", "gather"),
        *("nodes-below", "yield", "nap"),
    )
)
_FI_INFO_SECONDS = 30.0


@dataclass(frozen=True)
class Machine:
    """The choices on some hosts.

    Attributes:
        members: The number of members of the ring between nodes; 1: all ranks are on one host.
        most_ranks: The most ranks on one host.
        providers: The providers of libfabric on this host.
        interfaces: The network interfaces of this host without loopback.
        provider: The provider that is used by default; "": MPI's own choice.
        environ: The user's environment; settings in it are not tried.
    """

    members: int
    most_ranks: int
    providers: Sequence[str]
    interfaces: Sequence[str]
    provider: str
    environ: Mapping[str, str]


def look(hosts: Sequence[Host], size: int, environ: Mapping[str, str]) -> Machine:
    """Looks at this host, for a job on some hosts; none: all ranks are on this host."""
    used, left = [], size
    for host in hosts:
        used.append(min(host.slots, left))
        left -= used[-1]
    flat = environ.get("HOROVOD_FT_TOPOLOGY") == "flat"
    members = size if flat else max(sum(ranks > 0 for ranks in used), 1)
    return Machine(
        members,
        max([*used, 1]) if hosts else size,
        _providers() if hosts else (),
        _interfaces() if hosts else (),
        choose_provider(environ, fast_devices()).name or "",
        environ,
    )


def knobs(machine: Machine) -> list[Knob]:
    """Returns the knobs to try, each with its default. Pure.

    The most important knobs are first, so that a search that runs out of time has tried them.
    """
    between = machine.members > 1
    provider = machine.provider
    found = [
        _knob("provider", "FI_PROVIDER", _first(provider, machine.providers), provider),
        _knob("interface", "FI_TCP_IFACE", _first("", machine.interfaces), ""),
        _knob("topology", "HOROVOD_FT_TOPOLOGY", TOPOLOGIES, TOPOLOGIES[0]),
        _knob("endpoints", "HOROVOD_FT_ENDPOINTS", ENDPOINT_CHOICES, ENDPOINT_CHOICES[0]),
        _knob("connections", "HOROVOD_FT_CONNECTIONS", ("1", "2", "4", "8"), "1"),
        _knob("node-segment", "HOROVOD_FT_NODE_SEGMENT_BYTES", _NODE_SEGMENTS, "128K"),
        _knob("node-window", "HOROVOD_FT_NODE_WINDOW_BYTES", _NODE_WINDOWS, "1M"),
        _knob("window", "HOROVOD_FT_TRANSFERS", ("1", "2", "4", "8", "16"), "4"),
        _knob("segment", "HOROVOD_FT_RING_SEGMENT_BYTES", _SEGMENTS, "256K"),
        _knob("gather", "HOROVOD_FT_GATHER_BYTES", ("0", "4K", "16K", "64K", "256K"), "16K"),
        _knob("nodes-below", "HOROVOD_FT_NODES_BELOW", _trees(machine.members), _BELOW),
        _knob("yield", "HOROVOD_FT_YIELD_SECONDS", ("0", "0.00005", "0.0005", "0.005"), "0.00005"),
        _knob("nap", "HOROVOD_FT_NAP_SECONDS", ("0.0001", "0.0003", "0.001", "0.003"), "0.001"),
        _knob("binding", "HOROVOD_FT_BIND_TO", BIND_TO, asked_binding(machine.environ)),
    ]
    matters: Mapping[str, bool] = {
        "provider": len(machine.providers) > 0,
        # Two names of one network are no choice, but that only measuring can tell.
        "interface": provider == "tcp" and len(machine.interfaces) > 1,
        "topology": machine.most_ranks > 1,
        "endpoints": between,
        "connections": between,
        "node-segment": machine.most_ranks > 1,
        "node-window": machine.most_ranks > 1,
        "window": between,
        "segment": between,
        "gather": between,
        "nodes-below": between,
        "yield": between,
        "nap": between,
        "binding": True,
    }
    return [
        knob
        for knob in found
        if matters[knob.name]
        and len(knob.values) > 1
        and not is_set(knob.variable, machine.environ)
    ]


def _knob(name: str, variable: str, values: Sequence[str], default: str) -> Knob:
    return Knob(name, variable, values, default, ordered=name in _ORDERED)


def _trees(members: int) -> list[str]:
    """Returns the widths that give different trees of some nodes, and the default width."""
    return [width for width in _NODES_BELOW if width == _BELOW or int(width) < members - 1]


def _first(default: str, others: Sequence[str]) -> tuple[str, ...]:
    return (default, *(value for value in others if value != default))


def _providers() -> list[str]:
    """Returns the providers that libfabric's fi_info lists on this host; none if it cannot run."""
    environment = {**os.environ, **mpi_environment()}
    root = Path(environment["I_MPI_ROOT"])
    # As pip installs Intel MPI, where the fi_info in bin looks for another in vain; else in its own
    # layout, which finds its providers itself.
    installed = root / "bin" / "libfabric" / "fi_info"
    if installed.exists():
        environment.setdefault("FI_PROVIDER_PATH", str(root / "lib"))
    try:
        listed = subprocess.run(
            [installed if installed.exists() else "fi_info"],
            env=environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=_FI_INFO_SECONDS,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    return offered(listed)


def offered(listed: str) -> list[str]:
    """Returns the providers in fi_info's list that MPI can use between hosts. Pure."""
    found = set(re.findall(r"^provider: (\S+)$", listed, re.MULTILINE))
    return [name for name in _PROVIDERS if name in found]


def _interfaces() -> list[str]:
    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    return sorted(
        name
        for name, addresses in psutil.net_if_addrs().items()
        if name in up
        and any(a.family.name == "AF_INET" and not a.address.startswith("127.") for a in addresses)
    )
