"""Names of hosts are looked up before mpirun is started."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.launcher import host_names
from hvd_ft.launcher.host_names import check_known, is_this_host
from hvd_ft.members.hosts import parse_hosts

KNOWN = {"n0", "n1", "real.example"}
FakeSsh = Callable[..., dict[str, str]]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A DNS that knows `KNOWN`; collects what it is asked for."""
    asked = []

    def look_up(name: str, port: object, **_: object) -> list[object]:
        asked.append(name)
        if name not in KNOWN:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [()]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return asked


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSsh:
    """Returns a function that makes a program, ssh by default, and an environment with it."""

    def make(script: str, name: str = "ssh") -> dict[str, str]:
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return {"I_MPI_HYDRA_BOOTSTRAP_EXEC": name} if name != "ssh" else {}

    return make


def check(hosts: str, environ: dict[str, str] | None = None) -> None:
    check_known(parse_hosts(hosts, 1), environ or {})


def test_known_hosts_are_looked_up_once(names: list[str]) -> None:
    check("n0:4,n1:2,n0:1")
    assert sorted(names) == ["n0", "n1"]


def test_this_host_needs_no_lookup(names: list[str]) -> None:
    check(f"localhost:4,127.0.0.1:2,{socket.gethostname()}:2")
    assert names == []


def test_an_unknown_host_is_named_with_reason_and_remedy(names: list[str], ssh: FakeSsh) -> None:
    ssh('echo "hostname $2"')
    with pytest.raises(HvdFtError) as error:
        check("n0:4,n9:2")
    said = "-H names the host n9, not known here (Name or service not known): correct the name, or"
    assert str(error.value).startswith(said)
    with pytest.raises(HvdFtError, match="the hosts n7, n8, n9, not known here"):
        check("n9,n8,n0,n7")


@pytest.mark.parametrize(
    "said",
    [
        "echo hostname real.example",
        'echo "hostname $2"; echo proxyjump gate',
        'echo "hostname $2"; echo "proxycommand nc %h %p"',
    ],
)
def test_a_host_that_ssh_knows_is_known(names: list[str], ssh: FakeSsh, said: str) -> None:
    ssh(f"test $1 = -G && {said}")
    check("alias:2")


@pytest.mark.parametrize(
    "said",
    [
        'echo "hostname $2"; echo proxyjump none',
        "echo hostname unknown.example",
        "echo hostname real.example; exit 255",
        "exit 0",
    ],
)
def test_a_host_that_ssh_does_not_know_either(names: list[str], ssh: FakeSsh, said: str) -> None:
    ssh(said)
    with pytest.raises(HvdFtError, match="names the host alias"):
        check("alias:2")


def test_without_ssh_an_unknown_host_is_unknown(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(HvdFtError, match="names the host n9"):
        check("n9:2")


def test_ssh_that_does_not_answer_is_not_waited_for(
    names: list[str], ssh: FakeSsh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_names, "_SSH_SECONDS", 0.05)
    ssh("exec sleep 600")
    with pytest.raises(HvdFtError, match="names the host n9"):
        check("n9:2")


def test_what_another_program_knows_is_its_own_affair(names: list[str], ssh: FakeSsh) -> None:
    check("n9:2", ssh("exit 1", name="my-ssh"))
    check("n9:2", {"I_MPI_HYDRA_BOOTSTRAP": "slurm"})
    with pytest.raises(HvdFtError, match="names the host n9"):
        check("n9:2", {"I_MPI_HYDRA_BOOTSTRAP": "ssh"})


def test_which_host_is_this_one() -> None:
    assert is_this_host("localhost")
    assert is_this_host("127.0.0.1")
    assert is_this_host(socket.gethostname())
    assert is_this_host("127.0.0.5")  # all of 127/8 is here
    assert not is_this_host("192.0.2.77")  # is unassigned (RFC 5737)
    assert not is_this_host("no-such-host.invalid")
