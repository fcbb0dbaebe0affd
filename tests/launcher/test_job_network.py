"""What a job is given of the network, and the line that says what it uses."""

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.job.ports import Ports
from hvd_ft.launcher import job as module
from hvd_ft.launcher.job import Job, network_of, resolve
from hvd_ft.mpi.environment import split_threads

GIVEN = {
    "HOROVOD_FT_INTERFACE": "lo",
    "FI_TCP_IFACE": "lo",
    "HOROVOD_FT_PORTS": "40000-40009",
}


@pytest.fixture(autouse=True)
def no_choice_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FI_PROVIDER", "I_MPI_OFI_PROVIDER", "HOROVOD_FT_INTERFACE", "I_MPI_PORT_RANGE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "fast_devices", lambda: [])


def job(several: bool = True, **network: str) -> Job:
    return Job(2, ["true"], machine_file="machines" if several else None, given=network)


def test_flags_go_to_the_launcher_to_hydra_and_to_mpi() -> None:
    several = job(**GIVEN)
    environment = resolve(several).environment
    assert environment["I_MPI_HYDRA_IFACE"] == "lo"
    assert environment["FI_TCP_IFACE"] == "lo"
    assert environment["I_MPI_PORT_RANGE"] == "40000:40009"
    assert environment["FI_TCP_PORT_LOW_RANGE"] == "40000"
    assert environment["HVDFT_LISTEN"] == "127.0.0.1"
    assert resolve(several).settings.ports == Ports(40000, 40009)


def test_the_users_own_range_of_mpi_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("I_MPI_PORT_RANGE", "5000:5009")
    assert resolve(job(**GIVEN)).environment["I_MPI_PORT_RANGE"] == "5000:5009"


def test_settings_may_need_what_a_flag_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_FT_GRACE_SECONDS", "30")
    with pytest.raises(HvdFtError, match="HOROVOD_FT_CHECKPOINT_DIR"):
        resolve(job())
    given = {"HOROVOD_FT_CHECKPOINT_DIR": "/c", "HOROVOD_FT_CONNECTIONS": "4"}
    environment = resolve(job(**given)).environment
    assert given.items() <= environment.items()
    assert environment["I_MPI_THREAD_MAX"] == split_threads(given)["I_MPI_THREAD_MAX"]


def test_a_job_on_one_host_needs_no_ports() -> None:
    assert "I_MPI_PORT_RANGE" not in resolve(job(several=False, **GIVEN)).environment


@pytest.mark.parametrize(
    ("network", "address", "line"),
    [
        (
            GIVEN,
            "127.0.0.1",
            "127.0.0.1 (HOROVOD_FT_INTERFACE=lo), ports 40000-40009",
        ),
        ({}, "10.0.0.1", "10.0.0.1 (the way to the other hosts)"),
        ({}, "", "all interfaces (no address of this host is known to lead to all others)"),
        (
            {"HOROVOD_FT_INTERFACE": "all"},
            "",
            "all interfaces (HOROVOD_FT_INTERFACE=all)",
        ),
    ],
)
def test_the_line(
    monkeypatch: pytest.MonkeyPatch, network: dict[str, str], address: str, line: str
) -> None:
    monkeypatch.setattr(module, "listen_address", lambda *_: address)
    start = "network: provider tcp (this host has no InfiniBand); the launcher listens on "
    assert network_of(resolve(job(**network))) == start + line


def test_an_interface_that_is_not_there() -> None:
    with pytest.raises(HvdFtError, match=r"--network-interface ib7 .* this host has no such"):
        resolve(job(HOROVOD_FT_INTERFACE="ib7"))
