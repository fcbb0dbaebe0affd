"""Where the launcher and mpirun listen."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.mpi import listening
from hvd_ft.mpi.listening import (
    ALL,
    EVERYWHERE,
    listen_address,
    listening_there,
    local_address,
)

OWN = "192.0.2.1"  # of this host's first interface, besides loopback


class Names:
    """The names that are known here, and from which address their hosts are reached."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.known = {"here": OWN, "n1": "192.0.2.2", "n2": "192.0.2.3"}
        self.from_others = {"198.51.100.7": "198.51.100.1", "127.0.1.1": "127.0.0.1"}
        interface = socket.socket  # before it is replaced
        names = self

        class Datagrams(interface):  # type: ignore[misc, valid-type]
            def connect(self, to: Any) -> None:
                if to[0].startswith("203."):
                    raise OSError("no route")
                self.to = to[0]

            def getsockname(self) -> Any:
                return names.from_others.get(self.to, OWN), 1

        monkeypatch.setattr(socket, "gethostname", lambda: "here")
        monkeypatch.setattr(socket, "getaddrinfo", self._find)
        monkeypatch.setattr(socket, "socket", Datagrams)
        interfaces = {
            name: [type("Entry", (), {"family": socket.AF_INET, "address": address})]
            for name, address in {"eth7": OWN, "eth8": "198.51.100.1"}.items()
        }
        monkeypatch.setattr(listening.psutil, "net_if_addrs", lambda: interfaces)

    def _find(self, name: str, *_: Any) -> list[Any]:
        if name not in self.known:
            raise socket.gaierror("unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self.known[name], 0))]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    listen_address.cache_clear()
    yield Names(monkeypatch)
    listen_address.cache_clear()


def test_it_is_the_address_of_this_host_s_name(names: Names) -> None:
    assert listen_address(("n1", "here"), None) == OWN


def test_a_name_that_means_loopback_leaves_the_way_to_the_others(names: Names) -> None:
    names.known["here"] = "127.0.1.1"
    assert listen_address(("here", "unknown", "n1", "n2"), None) == OWN
    assert listen_address(("here", "unknown"), None) == EVERYWHERE


def test_hosts_that_are_reached_in_several_ways(names: Names) -> None:
    names.known |= {"here": "127.0.0.1", "n3": "198.51.100.7", "n4": "203.0.113.1"}
    assert listen_address(("here", "n1", "n3"), None) == EVERYWHERE
    assert listen_address(("here", "n1", "n4"), None) == OWN, "no way to n4"


def test_an_address_that_is_not_this_host_s(names: Names) -> None:
    """As behind a translation of addresses: nobody can listen there."""
    names.known["here"] = "198.51.100.9"
    assert listen_address(("here", "n1"), None) == EVERYWHERE


def test_what_the_user_says(names: Names) -> None:
    assert listen_address(("here", "n1"), ALL) == EVERYWHERE
    assert listen_address(("here", "n1"), "eth7") == OWN
    with pytest.raises(
        HvdFtError,
        match=r"--network-interface ib7 \(HOROVOD_FT_INTERFACE\): .* one of eth7, eth8, or all",
    ):
        listen_address(("here", "n1"), "ib7")


def test_a_job_on_one_host_listens_on_loopback() -> None:
    assert local_address(None) == local_address(ALL) == "127.0.0.1"


def test_a_host_without_loopback(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    """In some network namespaces nobody can listen on 127.0.0.1."""
    there = {OWN}
    monkeypatch.setattr(listening, "_can_listen", there.__contains__)
    assert local_address(None) == local_address("eth8") == OWN
    there.clear()
    assert local_address(None) == EVERYWHERE


def test_an_interface_that_is_not_here_is_an_error_on_one_host_too(names: Names) -> None:
    with pytest.raises(HvdFtError, match=r"--network-interface eth9 .* give one of eth7, eth8"):
        local_address("eth9")


LISTEN = """\
import json, os, socket, subprocess, sys
here, everywhere, other = (socket.create_server((a, 0)) for a in ("127.0.0.2", "", "::1"))
child = [sys.executable, "-c", "import os; print(sorted(n for n in os.environ if 'PRELOAD' in n))"]
print(json.dumps([
    here.getsockname()[0], everywhere.getsockname()[0], os.environ.get("LD_PRELOAD"),
    subprocess.run(child, capture_output=True, text=True).stdout.strip(),
]))
"""


@pytest.mark.parametrize("others", ["", "libm.so.6"])
def test_what_is_preloaded_changes_where_one_program_listens(others: str) -> None:
    environment = {**os.environ, **({"LD_PRELOAD": others} if others else {})}
    script = LISTEN.replace('"::1"', '"127.0.0.3"')
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=listening_there("127.0.0.9", environment),
        check=True,
        capture_output=True,
        text=True,
    )
    left = ["LD_PRELOAD"] if others else []
    assert json.loads(done.stdout) == ["127.0.0.2", "127.0.0.9", others or None, str(left)]
    assert listening_there(EVERYWHERE, environment) == environment
