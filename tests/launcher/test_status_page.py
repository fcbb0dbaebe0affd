"""`--status-port`: where the page is served, and that the job does not depend on it."""

import contextlib
import os
import re
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.launcher.status_page import PageAddress, with_status_page


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


class Shown:
    """A display that notes what it is given."""

    takes_output = True

    def __init__(self) -> None:
        self.seen: list[object] = []

    def update(self, observer: object) -> None:
        self.seen.append(observer)

    def output(self, line: str) -> None:
        self.seen.append(line)


def test_a_port_that_is_taken_is_said_before_the_job() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = PageAddress("127.0.0.1", taken.getsockname()[1])
        with (
            pytest.raises(HvdFtError, match="give another one"),
            with_status_page(address, lambda: contextlib.nullcontext(Shown())),
        ):
            pass


def test_the_page_is_there_as_long_as_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Shown()

    @contextlib.contextmanager
    def displays() -> Iterator[Shown]:
        yield shown

    with with_status_page(PageAddress("127.0.0.1", 0), displays) as on_page:
        line = capsys.readouterr().err
        url, token = line.split()[3], Path(line.split()[-1].rstrip(")"))
        assert token.stat().st_mode & 0o777 == 0o600
        assert token.parent.stat().st_mode & 0o777 == 0o700
        with on_page() as display:
            assert display.takes_output
            display.output("a line")
        assert b'"status":null' in urllib.request.urlopen(f"{url}state.json").read()
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                assert token.read_text().strip() not in entry.read_text()
    assert shown.seen == ["a line"]
    assert not token.exists()
    with pytest.raises(OSError):
        urllib.request.urlopen(url)


def test_a_page_that_has_died_does_not_disturb_the_job(tmp_path: Path) -> None:
    shown = Shown()
    with (
        with_status_page(
            PageAddress("127.0.0.1", 0), lambda: contextlib.nullcontext(shown)
        ) as on_page,
        on_page() as display,
    ):
        page = display._page  # type: ignore[attr-defined]
        page.kill()
        page.wait()

        class Seen:
            directory = str(tmp_path)

        for _ in range(3):
            display.update(Seen())  # type: ignore[arg-type]
            Seen.directory += "x"
    assert len(shown.seen) == 3
    assert page.pid != os.getpid()
