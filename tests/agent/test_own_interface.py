"""An interface that a host does not have is named before MPI begins."""

import os
import socket

import psutil
import pytest

from hvd_ft.agent import main as agent
from hvd_ft.errors import HostError
from hvd_ft.mpi.fabric import missing_interface
from hvd_ft.mpi.own_interface import check_interface

TCP = {"FI_PROVIDER": "tcp"}


@pytest.mark.parametrize(
    ("environ", "devices", "missing"),
    [
        ({"FI_TCP_IFACE": "eth9"}, [], "eth9"),
        ({"FI_TCP_IFACE": "eth9", "FI_PROVIDER": "tcp;ofi_rxm"}, ["mlx5_0"], "eth9"),
        ({"FI_TCP_IFACE": "eth9", "FI_PROVIDER": "psm3"}, [], ""),  # which does not read it
        ({"FI_TCP_IFACE": "eth9"}, ["mlx5_0"], ""),  # likewise
        ({"FI_TCP_IFACE": "eth0"}, [], ""),
        ({}, [], ""),
    ],
)
def test_only_what_mpi_would_use_is_missed(
    environ: dict[str, str], devices: list[str], missing: str
) -> None:
    assert missing_interface(environ, devices, ["lo", "eth0"]) == missing


def test_the_line_names_host_and_interface() -> None:
    host = os.uname().nodename
    with pytest.raises(HostError, match=f"host {host} has no interface eth99 .*only .*lo.*: give"):
        check_interface({**TCP, "FI_TCP_IFACE": "eth99"})
    check_interface({**TCP, "FI_TCP_IFACE": "lo"})


def test_an_interface_without_an_address_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"lo": psutil.net_if_addrs()["lo"], "eth1": []}
    assert any(entry.family == socket.AF_INET for entry in found["lo"])
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: found)
    with pytest.raises(HostError, match="has no interface eth1"):
        check_interface({**TCP, "FI_TCP_IFACE": "eth1"})


@pytest.mark.parametrize(("rank", "here", "says"), [(0, 0, True), (2, 0, True), (3, 1, False)])
def test_it_is_said_once_on_each_host(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rank: int,
    here: int,
    says: bool,
) -> None:
    """Other errors are those of all hosts, and rank 0's agent alone says them."""

    def fail() -> None:
        raise HostError("not on this host")

    monkeypatch.setenv("PMI_RANK", str(rank))
    monkeypatch.setenv("MPI_LOCALRANKID", str(here))
    monkeypatch.setattr(agent, "_find_shim", fail)
    monkeypatch.setattr(agent.native, "become_subreaper", lambda: None)
    assert agent.main([]) == 2
    assert ("not on this host" in capsys.readouterr().err) == says
