"""`hvdft check -H`: how hosts are asked, which here are processes of this one."""

import json
import os
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from hvd_ft.doctor.between_rules import Clock, Link, Seen, Speed
from hvd_ft.doctor.facts import HostFacts, Limits
from hvd_ft.doctor.finding import ERROR, NOTE, WARNING, Finding
from hvd_ft.errors import HvdFtError
from hvd_ft.members.hosts import Host, parse_hosts
from hvd_ft.tools.check import check_output, measure
from hvd_ft.tools.check.command import merged, parameters
from hvd_ft.tools.check.host_probe import CLOCK, Request
from hvd_ft.tools.check.host_session import HostSession
from hvd_ft.tools.check.job_hosts import look_at, rounds
from hvd_ft.tools.check.two_ranks import ring_of

# Starts the probe on "hosts" of other names, as mpirun does: -np 1 -hosts HOST python -m …
MPIEXEC = """\
#!/bin/sh
case $4 in
refused) echo 'ssh: connect to host refused port 22: Connection refused' >&2; exit 255;;
silent) exec sleep 20;; # no longer, so that a test fails instead of hanging
babbles) echo 'a banner of the login node';;
wrong) echo '{"time": "noon"}'; exec cat;;
esac
shift 4
exec "$@"
"""


@pytest.fixture
def mpirun(tmp_path: Path) -> Mapping[str, str]:
    """The environment of an mpirun whose hosts are here."""
    program = tmp_path / "mpiexec.hydra"
    program.write_text(MPIEXEC)
    program.chmod(0o755)
    own = {"HOROVOD_FT_INTERFACE": "lo", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    return {**os.environ, **own}


def test_hosts_are_asked_and_tested(
    mpirun: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "launcher")
    hosts = parse_hosts("babbles:2,refused:1,n2:1", 1)
    shown: list[str] = []
    seen = look_at(hosts, mpirun, shown.append)
    assert seen.silent == {"refused": "ssh: connect to host refused port 22: Connection refused"}
    assert [*seen.facts] == ["babbles", "n2"]
    assert seen.facts["babbles"].limits.ranks == 2
    assert seen.facts["n2"].versions["TensorFlow"] == "2.15.1"
    for name in ("babbles", "n2"):
        assert abs(seen.clocks[name].ahead) <= seen.clocks[name].within  # it is this clock
        assert seen.speeds[name].cpu > 0 and seen.speeds[name].memory > 0
    assert [(link.sender, link.receiver) for link in seen.links] == [
        ("babbles", "n2"),
        ("n2", "babbles"),
    ]
    assert all(link.rate > 0 and not link.error for link in seen.links)
    assert len(shown) == 3


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("silent", "it does not answer within 0.1 s"),
        ("refused", "ssh: connect to host refused port 22: Connection refused"),
        ("wrong", "it answers with something else"),
    ],
)
def test_a_host_that_does_not_answer_is_no_hang(
    mpirun: Mapping[str, str], host: str, why: str
) -> None:
    session = HostSession(host, mpirun)
    try:
        with pytest.raises(HvdFtError, match=why):
            session.ask(Request(CLOCK), 0.1 if host == "silent" else 600.0)
    finally:
        session.close()


def test_each_host_has_one_partner_in_a_round() -> None:
    for size in range(10):
        names = [f"n{number}" for number in range(size)]
        found = rounds(names)
        for pairs in found:
            busy = [name for pair in pairs for name in pair]
            assert len(busy) == len(set(busy))
        edges = {frozenset(pair) for pairs in found for pair in pairs}
        ring = {frozenset((names[at - 1], names[at])) for at in range(size)}
        assert edges == {edge for edge in ring if len(edge) == 2}
        assert sum(map(len, found)) == len(edges)
        assert len(found) <= 3


def test_a_stranger_at_the_listener_is_not_measured() -> None:
    token = "t" * 32
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        rates: list[float] = []
        taking = threading.Thread(target=lambda: rates.append(measure.receive(listener, token)))
        taking.start()
        measure.send("127.0.0.1", port, "s" * 32)  # is hung up on
        assert taking.is_alive()
        assert measure.send("127.0.0.1", port, token) == ""
        taking.join()
    assert rates[0] > 0
    assert f"127.0.0.1 port {port}: " in measure.send("127.0.0.1", port, token)


def test_hosts_are_looked_at_once_with_their_ranks() -> None:
    hosts = parse_hosts("n0:2,n1:2,n0:2", 1)
    assert merged(hosts, None) == [Host("n0", 4), Host("n1", 2)]
    assert merged(hosts, 5) == [Host("n0", 3), Host("n1", 2)]
    assert merged(hosts, 2) == [Host("n0", 2)]


def test_numbers_of_parameters() -> None:
    assert [parameters(text) for text in ("7", "100M", "1.5b", "25k")] == [
        *(7, 100_000_000),
        *(1_500_000_000, 25_000),
    ]
    for text in ("", "M", "0", "-1", "1e9", "9999999999G"):
        with pytest.raises(Exception, match="is not a number of parameters"):
            parameters(text)


def test_the_line_of_two_ranks_says_what_mpi_has_given() -> None:
    said = "two ranks: an allreduce over Intel(R) MPI, libfabric tcp, {} in use{}"
    for text, found in {
        said.format("3 endpoints", ", MPI has 6"): (3, 6, ""),
        said.format("1 endpoint", ", MPI has 6 (2 CPUs for 2 ranks)"): (1, 6, "2 CPUs for 2 ranks"),
        said.format("1 endpoint", " (MPI was (not) split)"): (1, 1, "MPI was (not) split"),
        said.format("2 rings with 2 endpoints each", ", MPI has 7"): (2, 7, ""),
    }.items():
        ring = ring_of(text)
        assert ring and (ring.in_use, ring.endpoints, ring.why) == found
    assert ring_of("Horovod: 0.28.1") is None


LONG = Finding(
    "limit", WARNING, "there is " + "little " * 20 + "of it", "it " * 50, "set A=" + "b" * 90
)


def test_what_is_shown_fits_100_columns() -> None:
    text = check_output.block(LONG.on("n0", "n1", "n2", "n3", "n4"))
    lines = text.splitlines()
    assert lines[0].startswith("warning: n0, n1, n2 and 2 others: there is little")
    assert [line[:6] for line in lines if ": " in line[:7]] == ["  why:", "  do: "]
    assert max(map(len, lines)) <= 100
    name = "a-host-with-a-very-long-name.of.a.cloud"
    limits = Limits(128, 256, 127.5, memory=2 << 40, arena=1 << 40)
    seen = Seen(
        silent={"n1": "x"},
        facts={name: HostFacts(name, limits)},
        clocks={name: Clock(-86400.5, 0.1)},
        speeds={name: Speed(123456.7, 1234.5)},
        links=[Link(name, "n2", 123456.7), Link("n2", name, 123456.7)],
    )
    from rich.console import Console

    console = Console(width=check_output.COLUMNS)
    with console.capture() as captured:
        console.print(check_output.hosts_table(seen))
    rows = captured.get().splitlines()
    assert "…" not in "".join(rows).replace("a-host-with-a-very-…", "")
    assert len(rows) == 3 and max(map(len, rows)) <= 100
    assert "-86400 s" in rows[1] and "256 (128)" in rows[1], rows


def test_exit_codes_and_verdicts() -> None:
    error, note = Finding("e", ERROR, "", "", ""), Finding("n", NOTE, "", "", "")
    for findings, code, line in (
        ([], 0, "everything is there"),
        ([note], 0, "everything is there"),
        ([note, LONG], 1, "everything is there; 1 warning"),
        ([LONG, LONG], 1, "everything is there; 2 warnings"),
        ([LONG, error], 2, ""),
    ):
        assert check_output.exit_code(findings) == code
        assert check_output.verdict(findings) == line


def test_the_json_has_everything() -> None:
    seen = Seen({"n1": "silent"}, {"n0": HostFacts("n0")}, {"n0": Clock(0.1, 0.2)})
    text = check_output.as_json(["Horovod: 0.28.1"], HostFacts("n9"), seen, [LONG.on("n0")])
    told = json.loads(text)
    assert (told["schema"], told["exit_code"]) == (1, 1)
    assert told["parts"] == {"Horovod": "0.28.1"}
    assert told["here"]["limits"]["arena_dir"] == "/dev/shm"
    assert told["hosts"]["n0"]["clock"] == {"ahead": 0.1, "within": 0.2}
    assert told["hosts"]["n1"] == {"silent": "silent", "facts": None, "speed": None, "clock": None}
    [finding] = told["findings"]
    assert {*finding} == {"id", "severity", "what", "why", "remedy", "hosts"}
    assert finding["hosts"] == ["n0"]
