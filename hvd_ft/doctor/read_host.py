"""Reads everything that the rules judge of this host."""

import os
import platform
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from hvd_ft import __version__
from hvd_ft.doctor.facts import HostFacts, Limits, Memory, Network
from hvd_ft.doctor.reading import read_limits
from hvd_ft.errors import HvdFtError
from hvd_ft.installed.frameworks import TENSORFLOW, TORCH
from hvd_ft.job.arena_limit import arena_limit_bytes
from hvd_ft.job.settings import Settings
from hvd_ft.mpi.environment import mpi_root
from hvd_ft.mpi.fabric import choose_provider, fast_devices
from hvd_ft.mpi.in_paths import mpis_in_path
from hvd_ft.mpi.own_interface import check_interface
from hvd_ft.system.cgroup import read_text
from hvd_ft.system.distributions import version_of
from hvd_ft.system.open_files import locked_memory
from hvd_ft.system.process_placement import memory_of, policy_of
from hvd_ft.system.topology import read_topology

_PCI = Path("/sys/bus/pci/devices")
_DEVICE_FILES = Path("/dev/infiniband")
_INFINIBAND, _NETWORK, _MELLANOX = "0x0207", "0x02", "0x15b3"
_LIBRARY = "libibverbs.so.1"
_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
_CONTAINER = ("/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io")


def read_host(
    ranks: int, environ: Mapping[str, str], checks: Iterable[Callable[[], object]] = ()
) -> HostFacts:
    """Reads everything.

    Args:
        ranks: that are to run here.
        environ: of the user, or as a job's processes have it.
        checks: of the installation, which raise HvdFtError; their errors are in `wrong`.

    Raises:
        HvdFtError: a setting is wrong.
    """
    settings = Settings.from_env(environ)
    of_job = (lambda: arena_limit_bytes(settings), lambda: check_interface(environ))
    wrong = list(_wrong([*checks, *of_job]))
    try:
        limits = read_limits(ranks, settings.arena_dir)
    except OSError:  # that is one of those that are wrong
        limits = Limits(ranks, arena_dir=settings.arena_dir)
    return HostFacts(
        name=platform.node(),
        limits=limits,
        network=read_network(environ),
        memory=Memory(len(read_topology().memory) or 1, policy_of(memory_of(os.getpid()))),
        mpis=_mpis(environ),
        versions={
            "hvd_ft": __version__,
            "Python": ".".join(platform.python_version_tuple()[:2]),
            "TensorFlow": TENSORFLOW.version() or "none",
            "PyTorch": TORCH.version() or "none",
            "Horovod": version_of("horovod") or "none",
            "Intel MPI": version_of("impi-rt") or "none",
        },
        wrong=wrong,
    )


def read_network(environ: Mapping[str, str]) -> Network:
    """Reads what there is between this host and others.

    Args:
        environ: as of `read_host`.
    """
    devices = fast_devices()
    provider = choose_provider(environ, devices)
    folders = [*filter(None, environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)), *_FOLDERS]
    return Network(
        provider=provider.name or "",
        why=provider.why,
        devices=devices,
        device_files=sorted(file.name for file in _DEVICE_FILES.glob("uverbs*")),
        adapters=sorted(device.name for device in _PCI.glob("*") if _is_fast(device)),
        driver=any(os.path.exists(os.path.join(folder, _LIBRARY)) for folder in folders),
        locked_memory=locked_memory(),
        container=any(map(os.path.exists, _CONTAINER)),
    )


def _is_fast(device: Path) -> bool:
    kind, vendor = ((read_text(f"{device}/{name}") or "").strip() for name in ("class", "vendor"))
    return kind.startswith(_INFINIBAND) or (kind.startswith(_NETWORK) and vendor == _MELLANOX)


def _mpis(environ: Mapping[str, str]) -> list[str]:
    found = mpis_in_path(environ)
    try:
        own = str(mpi_root().resolve())
    except HvdFtError:  # that is one of those that are wrong
        return found
    return [own, *(root for root in found if root != own)]


def _wrong(checks: Iterable[Callable[[], object]]) -> Iterable[str]:
    for check in checks:
        try:
            check()
        except HvdFtError as error:
            yield str(error)
