"""`--status-port`: where the page is served, and that the job does not depend on it."""

import contextlib
import re
import socket
import urllib.request
from pathlib import Path

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.job.page_messages import (
    Follow,
    Kill,
    KillAnswer,
    Links,
    LinkState,
    LinkStatus,
    parse_to_page,
    to_packet,
)
from hvd_ft.launcher.status_page import MOST_LINKS, PageAddress, PageProcess, status_page
from hvd_ft.system.packets import Packets, packet_pair


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8080", PageAddress("127.0.0.1", 8080)),
        (":0", PageAddress("127.0.0.1", 0)),
        ("0.0.0.0:80", PageAddress("0.0.0.0", 80)),
        ("[::1]:8080", PageAddress("::1", 8080)),
    ],
)
def test_addresses(text: str, address: PageAddress) -> None:
    assert PageAddress.parse(text) == address


@pytest.mark.parametrize("text", ["", "x", "-1", "65536", "1.2.3.4", "host:"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        PageAddress.parse(text)


def test_a_port_that_is_taken_is_said_before_the_job() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = PageAddress("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(HvdFtError, match="give another one"), status_page(address):
            pass


def test_the_page_is_there_as_long_as_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with status_page(PageAddress("127.0.0.1", 0)):
        line = capsys.readouterr().err
        url, token = line.split()[3], Path(line.split()[-1].rstrip(")"))
        assert token.stat().st_mode & 0o777 == 0o600
        assert token.parent.stat().st_mode & 0o777 == 0o700
        assert b'"status":null' in urllib.request.urlopen(f"{url}state.json").read()
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                assert token.read_text().strip() not in entry.read_text()
    assert not token.exists()
    with pytest.raises(OSError):
        urllib.request.urlopen(url)


def link(number: int, state: LinkState) -> LinkStatus:
    return LinkStatus(
        source=f"n{number}",
        dest="n0",
        kind="ring",
        state=state,
        transfers=number,
        stalled_seconds=0.0,
    )


def test_a_page_that_has_died_does_not_disturb_the_job() -> None:
    ours, theirs = packet_pair()
    page = PageProcess(Packets(ours))
    theirs.close()
    for number in range(3):
        page.follow(f"/dev/shm/{number}")
        page.show_links([link(1, "open")])
        page.answer(number, "")
    assert page.asked() is None


def test_the_page_is_told_of_a_job_once_and_cannot_say_more_than_kill() -> None:
    ours, theirs = packet_pair()
    page, end = PageProcess(Packets(ours)), Packets(theirs)
    assert page.asked() == []
    for directory in ("/a", "/a", "/b"):
        page.follow(directory)
    page.answer(7, "why")
    heard = [parse_to_page(end.receive() or b"") for _ in range(3)]
    assert heard == [Follow("/a"), Follow("/b"), KillAnswer(7, "why")]
    assert end.receive() == b""
    end.send(to_packet(Kill(7, 2)))
    end.send(b'{"page":"Stop"}')
    end.send(b"no JSON")
    assert [page.asked() for _ in range(4)] == [[Kill(7, 2)], [], [], []]


def test_of_very_many_links_those_that_are_not_open_are_shown() -> None:
    ours, theirs = packet_pair()
    links = [link(number, "open") for number in range(2 * MOST_LINKS)]
    PageProcess(Packets(ours)).show_links([*links, link(9000, "stalled")])
    shown = parse_to_page(Packets(theirs).receive() or b"")
    assert isinstance(shown, Links) and len(shown.links) == MOST_LINKS
    assert shown.links[0].source == "n9000"
