"""`hvdft run --status-port`: starts the process of the job's status page (hvd_ft/page/)."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

from hvd_ft.errors import HvdFtError
from hvd_ft.launcher.watchers import Display
from hvd_ft.native.observer import Observer
from hvd_ft.system.child import begin_child
from hvd_ft.system.say import say
from hvd_ft.system.whole_file import write_whole

_LOOPBACK = "127.0.0.1"
_NAMES_OF_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_END_SECONDS = 5.0


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


class OnPage:
    """A display that has the page show the job too.

    Args:
        display: shows the job here.
        page: the page's process.
    """

    def __init__(self, display: Display, page: subprocess.Popen[str]) -> None:
        self._display = display
        self._page = page
        self._followed = ""
        self.takes_output = display.takes_output

    def update(self, observer: Observer) -> None:
        """As `Display.update`."""
        if observer.directory != self._followed and self._page.stdin:
            self._followed = observer.directory
            with contextlib.suppress(OSError):  # the page's process has died; the job goes on
                self._page.stdin.write(f"{observer.directory}\n")
                self._page.stdin.flush()
        self._display.update(observer)

    def output(self, line: str) -> None:
        """As `Display.output`."""
        self._display.output(line)


Displays: TypeAlias = Callable[[], AbstractContextManager[Display]]


@contextlib.contextmanager
def with_status_page(address: PageAddress, displays: Displays) -> Iterator[Displays]:
    """Serves the page for as long as the context lasts.

    Args:
        address: where.
        displays: makes what shows a part of the job here.

    Yields:
        What makes the same, and has the page show it too.

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
        process = subprocess.Popen(
            [sys.executable, "-m", "hvd_ft.page.server", str(listener.fileno()), *names],
            env={**os.environ, "HVDFT_PAGE_TOKEN": token},
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            process_group=0,  # Ctrl-C is for the job, and its end shall be seen
            preexec_fn=begin_child,  # noqa: PLW1509  (there is no other thread yet)
            text=True,
        )
        stack.callback(_end, process)
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        say(f"status page: http://{shown}:{port}/ (the token for its drills is in {path})")
        listener.close()

        @contextlib.contextmanager
        def on_page() -> Iterator[Display]:
            with displays() as display:
                yield OnPage(display, process)

        yield on_page


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


def _end(process: subprocess.Popen[str]) -> None:
    try:
        process.communicate(timeout=_END_SECONDS)  # its stdin ends
    except (subprocess.TimeoutExpired, OSError):
        process.kill()
        process.wait()
