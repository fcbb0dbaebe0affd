"""The range of ports in which a job listens."""

import socket

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.job.ports import Ports, listen
from hvd_ft.job.settings import Settings
from hvd_ft.mpi.variables import in_ports


@pytest.mark.parametrize("text", ["", "40000", "0-9", "9-8", "1-65536", "1-2-3", "a-b", "-5-9"])
def test_what_is_no_range(text: str) -> None:
    assert Ports.parse(text) is None


def test_a_setting() -> None:
    assert Settings.from_env({"HOROVOD_FT_PORTS": "7-65535"}).ports == Ports(7, 65535)
    assert Settings.from_env({"HOROVOD_FT_PORTS": ""}).ports is None
    with pytest.raises(HvdFtError, match=r"HOROVOD_FT_PORTS='9-8' is not allowed: give a range"):
        Settings.from_env({"HOROVOD_FT_PORTS": "9-8"})


def test_mpi_gets_the_same_range() -> None:
    assert in_ports(Ports(7, 9)) == {
        "I_MPI_PORT_RANGE": "7:9",
        "FI_TCP_PORT_LOW_RANGE": "7",
        "FI_TCP_PORT_HIGH_RANGE": "9",
    }


def taken() -> tuple[socket.socket, int]:
    """Returns a listener whose next port is free, and its port."""
    while True:
        one = socket.create_server(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
        try:
            socket.create_server(("127.0.0.1", port + 1)).close()
            return one, port
        except OSError:
            one.close()


def test_the_first_free_port_is_taken() -> None:
    one, port = taken()
    with one:
        with listen("127.0.0.1", Ports(port, port + 1)) as other:
            assert other.getsockname()[1] == port + 1
        with pytest.raises(HvdFtError, match=rf"no port of {port}-{port} .* is free at 127.0.0.1"):
            listen("127.0.0.1", Ports(port, port))


def test_an_address_of_another_host_is_an_error_of_its_own() -> None:
    for ports in (Ports(40000, 40001), None):
        with pytest.raises(HvdFtError, match=r"cannot listen on 192.0.2.7 \(Cannot assign request"):
            listen("192.0.2.7", ports)
