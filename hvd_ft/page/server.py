"""The process that serves the status page of a job.

It reads the job's arena, and the launcher sends it the state of the links. All it can ask for is
that a worker is killed, which the job survives; it does so only for somebody who has the token.

Started by `hvdft run` (launcher/status_page.py), with which it exchanges the messages of
job/page_messages.py. It ends when the launcher's end of their socket is closed.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import msgspec
from aiohttp import web

from hvd_ft.job.page_messages import LinkStatus
from hvd_ft.page.history import History, Span
from hvd_ft.page.launcher_end import LauncherEnd
from hvd_ft.page.metrics import metrics_page
from hvd_ft.status.sight import Sight
from hvd_ft.status.snapshot import JobStatus
from hvd_ft.system.json_text import read_json_as
from hvd_ft.system.packets import Packets

LOOK_SECONDS = 0.5
_MOST_BYTES = 1024  # of a request's body
_STATIC = Path(__file__).with_name("static")
_Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class PageState(msgspec.Struct, frozen=True):
    """What /state.json has.

    Attributes:
        schema: version of this form.
        status: of the job, as `hvdft status --json` prints it; null before it has begun.
        now: the present, in the spans' time.
        history: what each rank did in the last ten minutes.
        ended: whether the job has ended.
        links: between the nodes; empty if all ranks are on one. Of very many only some.
    """

    schema: str
    status: JobStatus | None
    now: float
    history: dict[int, list[Span]]
    ended: bool
    links: list[LinkStatus]


class Server:
    """The pages of one job after the other.

    Args:
        token: who knows it may kill workers.
        launcher: kills them.
        names: the Host headers that are answered: others are of pages that were led here by DNS.
    """

    def __init__(self, token: str, launcher: LauncherEnd, names: frozenset[str]) -> None:
        self._token = token
        self._launcher = launcher
        self._names = names
        self._sight: Sight | None = None
        self._status: JobStatus | None = None
        self._history = History()
        self._ended = False

    def application(self) -> web.Application:
        """Returns what aiohttp runs."""

        @web.middleware
        async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
            return await self._guarded(request, handler)

        application = web.Application(client_max_size=_MOST_BYTES, middlewares=[guard])
        application.router.add_get("/", self._file("index.html"))
        for name in ("page.js", "page.css", "icon.svg"):
            application.router.add_get(f"/{name}", self._file(name))
        application.router.add_get("/state.json", self._state)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_post("/kill", self._kill)
        return application

    def follow(self, directory: str) -> None:
        """Shows another job from now on.

        Raises:
            HvdFtError: the directory is no job's.
        """
        sight = Sight(directory)
        if self._sight:
            self._sight.close()
        self._sight, self._ended = sight, False
        self._history = History()

    def look(self) -> None:
        """Reads the job."""
        if self._sight is None or self._ended:
            return
        self._sight.look()
        status = self._sight.read()
        if status is None or status.state in ("over", "dead"):
            self._ended = True
        if status is None:
            return
        self._status = status
        states: dict[int, tuple[str, int]] = {
            rank.rank: (rank.state, rank.incarnation) for rank in status.ranks
        }
        self._history.add(time.monotonic(), states)

    async def _guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            if self._names and _name(request.host) not in self._names:
                text = f"this page is at {', '.join(sorted(self._names))}\n"
                raise web.HTTPMisdirectedRequest(text=text)
            response = await handler(request)
        except web.HTTPException as refusal:
            refusal.headers.update(_HEADERS)
            raise
        response.headers.update(_HEADERS)
        return response

    def _file(self, name: str) -> _Handler:
        path = _STATIC / name

        async def answer(request: web.Request) -> web.StreamResponse:
            return web.FileResponse(path)

        return answer

    async def _state(self, request: web.Request) -> web.Response:
        state = PageState(
            "hvd_ft.page/1",
            self._status,
            time.monotonic(),
            self._history.spans(),
            self._ended,
            self._links(),
        )
        return web.Response(body=msgspec.json.encode(state), content_type="application/json")

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=metrics_page(self._status, self._links()),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    def _links(self) -> list[LinkStatus]:
        return [] if self._ended else self._launcher.links

    async def _kill(self, request: web.Request) -> web.Response:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            raise web.HTTPUnauthorized(text="give the token that hvdft run has named\n")
        try:
            rank = read_json_as(await request.read(), _Kill).rank
        except ValueError:
            raise web.HTTPBadRequest(text='give {"rank": N}\n') from None
        status = self._status
        if status is None or self._ended or not 0 <= rank < status.size:
            raise web.HTTPConflict(text=f"there is no rank {rank} that runs\n")
        try:
            problem = await self._launcher.kill(rank)
        except TimeoutError:
            text = "hvdft run does not answer: look at its output, and try again\n"
            raise web.HTTPGatewayTimeout(text=text) from None
        if problem:
            raise web.HTTPConflict(text=f"rank {rank} is not killed: {problem}\n")
        return web.Response(text=f"the worker of rank {rank} was killed\n")


def _name(host: str) -> str:
    """Returns a Host header without its port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


class _Kill(msgspec.Struct, forbid_unknown_fields=True):
    rank: int


async def serve(server: Server, launcher: LauncherEnd, listener: socket.socket) -> None:
    """Serves until the launcher ends it."""
    runner = web.AppRunner(server.application(), access_log=None)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    looks = asyncio.create_task(_look(server))
    await launcher.listen(server.follow)
    looks.cancel()
    await runner.cleanup()


async def _look(server: Server) -> None:
    while True:
        server.look()
        await asyncio.sleep(LOOK_SECONDS)  # nothing tells of what happens in an arena


def main() -> None:
    """The program: its arguments are two sockets' descriptors and the names."""
    listener, end = (socket.socket(fileno=int(word)) for word in sys.argv[1:3])
    launcher = LauncherEnd(Packets(end))
    server = Server(os.environ["HVDFT_PAGE_TOKEN"], launcher, frozenset(sys.argv[3:]))
    asyncio.run(serve(server, launcher, listener))


if __name__ == "__main__":
    main()
