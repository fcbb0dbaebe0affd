"""`hvdft run --status-port`: starts the process of the job's status page (hvd_ft/page/)."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hvd_ft.errors import HvdFtError
from hvd_ft.job.page_messages import (
    Follow,
    Kill,
    KillAnswer,
    Links,
    LinkStatus,
    parse_from_page,
    to_packet,
)
from hvd_ft.system.child import begin_child
from hvd_ft.system.packets import Packets, packet_pair
from hvd_ft.system.say import say
from hvd_ft.system.whole_file import write_whole

_LOOPBACK = "127.0.0.1"
_NAMES_OF_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_END_SECONDS = 5.0
MOST_LINKS = 512  # that fit into a packet


@dataclass(frozen=True)
class PageAddress:
    """Where the page is served.

    Attributes:
        host: address to listen on.
        port: of it; 0: any that is free.
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> PageAddress:
        """Reads `[ADDRESS:]PORT`.

        Raises:
            ValueError: it is none.
        """
        host, _, port = text.rpartition(":")
        if not port.isdecimal() or int(port) > 65535:
            raise ValueError(text)
        return cls(host.strip("[]") or _LOOPBACK, int(port))


class PageProcess:
    """The launcher's side of the page's process, as `StatusPage`.

    Args:
        end: of the packets between them.
    """

    def __init__(self, end: Packets) -> None:
        self._end = end
        self._followed = ""

    def fileno(self) -> int:
        """As `StatusPage.fileno`."""
        return self._end.fileno()

    def asked(self) -> list[Kill] | None:
        """As `StatusPage.asked`."""
        packet = self._end.receive()
        if packet is None:
            return None
        try:
            return [parse_from_page(packet)] if packet else []
        except ValueError:
            return []

    def follow(self, directory: str) -> None:
        """As `StatusPage.follow`."""
        if directory != self._followed and self._end.send(to_packet(Follow(directory))):
            self._followed = directory

    def show_links(self, links: Sequence[LinkStatus]) -> None:
        """As `StatusPage.show_links`; of very many, those that are not open come first."""
        shown = sorted(links, key=lambda link: link.state == "open")[:MOST_LINKS]
        self._end.send(to_packet(Links(shown)))

    def answer(self, number: int, problem: str) -> None:
        """As `StatusPage.answer`."""
        self._end.send(to_packet(KillAnswer(number, problem)))


@contextlib.contextmanager
def status_page(address: PageAddress) -> Iterator[PageProcess]:
    """Serves the page for as long as the context lasts.

    Args:
        address: where.

    Yields:
        What the launcher tells the page, and hears from it.

    Raises:
        HvdFtError: nothing can listen there.
    """
    token = secrets.token_urlsafe(24)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(_listen(address))
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="hvdft-page-"))
        path = os.path.join(directory, "token")
        write_whole(path, f"{token}\n".encode())
        loopback = listener.getsockname()[0] in ("127.0.0.1", "::1")
        names = _NAMES_OF_LOOPBACK if loopback else ()  # names of others are not known
        ours, theirs = packet_pair()
        descriptors = [listener.fileno(), theirs.fileno()]
        process = subprocess.Popen(
            [sys.executable, "-m", "hvd_ft.page.server", *map(str, descriptors), *names],
            env={**os.environ, "HVDFT_PAGE_TOKEN": token},
            stdin=subprocess.DEVNULL,
            pass_fds=descriptors,
            process_group=0,  # Ctrl-C is for the job, and its end shall be seen
            preexec_fn=begin_child,  # noqa: PLW1509  (there is no other thread yet)
        )
        theirs.close()
        stack.callback(_await_end, process)
        end = Packets(ours)
        stack.callback(end.close)  # at which the process ends
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        say(f"status page: http://{shown}:{port}/ (the token for its drills is in {path})")
        listener.close()
        yield PageProcess(end)


def _listen(address: PageAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise HvdFtError(
            f"--status-port: nothing can listen at {address.host}, port {address.port} "
            f"({error.strerror}): give another one, or 0 for any that is free"
        ) from error
    return listener


def _await_end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
