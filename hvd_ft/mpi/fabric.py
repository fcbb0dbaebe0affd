"""Which of libfabric's providers MPI uses between hosts, and why."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

INFINIBAND = Path("/sys/class/infiniband")
_VARIABLES = ("FI_PROVIDER", "I_MPI_OFI_PROVIDER")
_WITHOUT_ENDPOINTS = "mlx"


@dataclass(frozen=True)
class Provider:
    """A choice.

    Attributes:
        name: of the provider; None: Intel MPI chooses.
        why: for the user.
    """

    name: str | None
    why: str

    def __str__(self) -> str:
        return f"provider {self.name or 'as Intel MPI chooses'} ({self.why})"


def fast_devices(folder: Path = INFINIBAND) -> list[str]:
    """Returns the names of this host's InfiniBand and RoCE devices."""
    return sorted(device.name for device in folder.glob("*"))


def choose_provider(environ: Mapping[str, str], devices: list[str]) -> Provider:
    """Chooses a provider; the user's choice has priority. Pure.

    Intel MPI's own choice for Ethernet, tcp;ofi_rxm, cannot give threads separate endpoints, so tcp
    is chosen there. For a fast fabric the choice is left to Intel MPI.

    Args:
        environ: the user's.
        devices: as from `fast_devices`.
    """
    for variable in _VARIABLES:
        if environ.get(variable):
            return Provider(environ[variable], f"{variable} says so")
    if devices:
        return Provider(None, f"this host has {', '.join(devices)}")
    return Provider("tcp", "this host has no InfiniBand")


def why_no_endpoints(environ: Mapping[str, str]) -> str:
    """Returns why threads cannot have separate endpoints; "" if nothing is known against it.

    With such a provider and split threads MPI does not start.

    Args:
        environ: the user's.
    """
    for variable in _VARIABLES:
        value = environ.get(variable, "")
        excluded = value.startswith("^")  # libfabric's "all but"
        if not excluded and _WITHOUT_ENDPOINTS in re.split(r"[^\w.-]+", value):
            return f"the provider {_WITHOUT_ENDPOINTS} of {variable} has none for threads"
    return ""


def missing_interface(
    environ: Mapping[str, str], devices: list[str], interfaces: Collection[str]
) -> str:
    """Returns the interface that MPI has to use if this host lacks it; otherwise "". Pure.

    MPI would only report that it finds no way to the other hosts.

    Args:
        environ: of the process that will call MPI.
        devices: as from `fast_devices`.
        interfaces: names of this host's interfaces that have an address.
    """
    name = environ.get("FI_TCP_IFACE", "")
    provider = choose_provider(environ, devices).name or ""
    return name if provider.startswith("tcp") and name not in interfaces else ""
