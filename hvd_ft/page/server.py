"""The process that serves the status page of a job.

It reads the job's arena and nothing else, so whoever talks to it, however badly, cannot reach the
job; only who has the token can have it kill a worker, and that is what the job survives.

Started by `hvdft run` (launcher/status_page.py): stdin has a line with the job's directory whenever
another job, or part of it, begins, and ends with the command.
"""

from __future__ import annotations

import asyncio
import contextlib
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

from hvd_ft.errors import HvdFtError
from hvd_ft.job.processes import end_rank
from hvd_ft.page.history import History, Span
from hvd_ft.page.metrics import metrics_page
from hvd_ft.status.sight import Sight
from hvd_ft.status.snapshot import JobStatus
from hvd_ft.system.json_text import read_json_as
from hvd_ft.system.say import say

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
    """

    schema: str
    status: JobStatus | None
    now: float
    history: dict[int, list[Span]]
    ended: bool


class Server:
    """The pages of one job after the other.

    Args:
        token: who knows it may kill workers.
        names: the Host headers that are answered: others are of pages that were led here by DNS.
    """

    def __init__(self, token: str, names: frozenset[str]) -> None:
        self._token = token
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
            "hvd_ft.page/1", self._status, time.monotonic(), self._history.spans(), self._ended
        )
        return web.Response(body=msgspec.json.encode(state), content_type="application/json")

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=metrics_page(self._status),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

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
        if not status.ranks[rank].here:
            raise web.HTTPConflict(
                text=f"rank {rank} is on {status.ranks[rank].host or 'another host'}: kill its "
                f"worker, pid {status.ranks[rank].pid}, there\n"
            )
        say(f"rank {rank} is killed, as the status page was asked to")
        await asyncio.to_thread(end_rank, status.job, rank)
        return web.Response(text=f"the worker of rank {rank} was killed\n")


def _name(host: str) -> str:
    """Returns a Host header without its port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


class _Kill(msgspec.Struct, forbid_unknown_fields=True):
    rank: int


async def serve(server: Server, listener: socket.socket) -> None:
    """Serves until stdin ends."""
    runner = web.AppRunner(server.application(), access_log=None)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    looks = asyncio.create_task(_look(server))
    while line := (await lines.readline()).decode():
        with contextlib.suppress(HvdFtError):  # it has ended by now
            server.follow(line.rstrip("\n"))
    looks.cancel()
    await runner.cleanup()


async def _look(server: Server) -> None:
    while True:
        server.look()
        await asyncio.sleep(LOOK_SECONDS)  # nothing tells of what happens in an arena


def main() -> None:
    """The program: its arguments are the listening socket's descriptor and the names."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    server = Server(os.environ["HVDFT_PAGE_TOKEN"], frozenset(sys.argv[2:]))
    asyncio.run(serve(server, listener))


if __name__ == "__main__":
    main()
