"""What the page answers, to those whom it should answer and to strangers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestClient, TestServer
from job_statuses import job, rank

from hvd_ft.job.page_messages import LinkStatus
from hvd_ft.page import server as module
from hvd_ft.page.server import Server
from hvd_ft.status.snapshot import JobStatus

TOKEN = "the token"
LINK = LinkStatus(
    source="n0", dest="n1", kind="ring", state="stalled", transfers=3, stalled_seconds=4.5
)


class SightOf:
    """In the place of a job's sight."""

    def __init__(self, *statuses: JobStatus | None) -> None:
        self.statuses = list(statuses)
        self.closed = False

    def look(self) -> None:
        pass

    def read(self) -> JobStatus | None:
        return self.statuses.pop(0)

    def close(self) -> None:
        self.closed = True


class Launcher:
    """In the place of the connection with the launcher.

    Args:
        problem: why it kills no rank; "": it does; None: it does not answer.
    """

    def __init__(self, problem: str | None = "") -> None:
        self.problem = problem
        self.killed: list[int] = []
        self.links: list[LinkStatus] = []

    async def kill(self, rank: int) -> str:
        if self.problem is None:
            raise TimeoutError
        self.killed.append(rank)
        return self.problem


def serves(
    monkeypatch: pytest.MonkeyPatch,
    *statuses: JobStatus | None,
    launcher: Launcher | None = None,
) -> Server:
    """Returns a server that has looked once at each of these."""
    sight = SightOf(*statuses)
    monkeypatch.setattr(module, "Sight", lambda directory: sight)
    names = frozenset(["127.0.0.1", "localhost"])
    made = Server(TOKEN, launcher or Launcher(), names)  # type: ignore[arg-type]
    made.follow("directory")
    for _ in statuses:
        made.look()
    return made


def asked(server: Server, ask: Callable[[TestClient[Any, Any]], Awaitable[Any]]) -> Any:
    """Returns what a client's function returns."""

    async def run() -> Any:
        async with TestClient(TestServer(server.application())) as client:
            return await ask(client)

    return asyncio.run(run())


async def _kill(client: TestClient[Any, Any], body: str, token: str = TOKEN) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"}
    async with client.post("/kill", data=body, headers=headers) as answer:
        return answer.status, await answer.text()


def test_the_page_needs_nothing_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(client: TestClient[Any, Any]) -> list[str]:
        texts = []
        for path in ("/", "/page.js", "/page.css", "/icon.svg"):
            async with client.get(path) as answer:
                assert answer.status == 200, path
                assert answer.headers["Content-Security-Policy"].startswith("default-src 'self';")
                texts.append(await answer.text())
        return texts

    texts = asked(serves(monkeypatch), ask)
    assert "innerHTML" not in texts[1]
    for text in texts:
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_the_state_is_the_status_and_the_last_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    status = job(rank(0), rank(1, state="waiting"))

    async def ask(client: TestClient[Any, Any]) -> Any:
        async with client.get("/state.json") as answer:
            return await answer.json()

    state = asked(serves(monkeypatch, status, status), ask)
    assert state["schema"] == "hvd_ft.page/1" and not state["ended"]
    assert state["status"]["job"] == "k3j0a1" and len(state["status"]["ranks"]) == 2
    assert [span["state"] for span in state["history"]["1"]] == ["waiting"]
    assert asked(serves(monkeypatch), ask)["status"] is None  # it has not begun


@pytest.mark.parametrize("last", [None, job(rank(0), state="over"), job(rank(0), state="dead")])
def test_a_job_that_has_ended_stays_as_it_was(
    monkeypatch: pytest.MonkeyPatch, last: JobStatus | None
) -> None:
    launcher = Launcher()
    launcher.links = [LINK]
    server = serves(monkeypatch, job(rank(0)), last, launcher=launcher)
    server.look()  # there is nothing more to read

    async def ask(client: TestClient[Any, Any]) -> Any:
        async with client.get("/state.json") as answer:
            state = await answer.json()
        return state, await _kill(client, '{"rank": 0}')

    state, (code, _) = asked(server, ask)
    assert state["ended"] and state["status"]["job"] == "k3j0a1"
    assert code == 409 and launcher.killed == [] and state["links"] == []


def test_another_part_of_the_job_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    first = SightOf(job(rank(0)), None)
    second = SightOf(job(rank(0), job="another"))
    sights = iter([first, second])
    monkeypatch.setattr(module, "Sight", lambda directory: next(sights))
    server = Server(TOKEN, Launcher(), frozenset())  # type: ignore[arg-type]
    server.follow("one")
    server.look(), server.look()
    server.follow("two")
    server.look()
    assert first.closed and not second.closed

    async def ask(client: TestClient[Any, Any]) -> Any:
        async with client.get("/state.json") as answer:
            return await answer.json()

    state = asked(server, ask)
    assert state["status"]["job"] == "another" and not state["ended"]


def test_who_has_the_token_kills_a_rank_of_any_host(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = Launcher()
    ranks = rank(0), rank(1), rank(2, here=False, host="n1")
    server = serves(monkeypatch, job(*ranks), launcher=launcher)

    async def ask(client: TestClient[Any, Any]) -> Any:
        return [
            await _kill(client, '{"rank": 1}', token="another"),
            await _kill(client, '{"rank": 1}', token=""),
            await _kill(client, '{"rank": 3}'),
            await _kill(client, '{"rank": -1}'),
            await _kill(client, '{"rank": "1"}'),
            await _kill(client, "rank 1"),
            await _kill(client, '{"rank": 1, "signal": 9}'),
            await _kill(client, '{"rank": 2}'),
            await _kill(client, '{"rank": 1}'),
        ]

    answers = asked(server, ask)
    codes = [code for code, _ in answers]
    assert codes == [401, 401, 409, 409, 400, 400, 400, 200, 200]
    assert launcher.killed == [2, 1]


@pytest.mark.parametrize(
    ("problem", "code", "text"), [("it ends", 409, "it ends"), (None, 504, "does not answer")]
)
def test_what_the_launcher_does_not_do_is_said(
    monkeypatch: pytest.MonkeyPatch, problem: str | None, code: int, text: str
) -> None:
    server = serves(monkeypatch, job(rank(0)), launcher=Launcher(problem))
    answer = asked(server, lambda client: _kill(client, '{"rank": 0}'))
    assert answer[0] == code and text in answer[1]


def test_the_links_are_in_the_state_and_the_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = Launcher()
    launcher.links = [LINK]
    server = serves(monkeypatch, job(rank(0)), launcher=launcher)

    async def ask(client: TestClient[Any, Any]) -> Any:
        async with client.get("/state.json") as answer:
            state = await answer.json()
        async with client.get("/metrics") as answer:
            return state, await answer.text()

    state, metrics = asked(server, ask)
    assert state["links"] == [msgspec.to_builtins(LINK)]
    assert 'dest="n1",job_id="k3j0a1",kind="ring",source="n0"} 4.5' in metrics


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example", ""])
def test_a_page_that_dns_leads_here_is_refused(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    async def ask(client: TestClient[Any, Any]) -> Any:
        async with client.get("/state.json", headers={"Host": host}) as answer:
            return answer.status, await answer.text()

    code, text = asked(serves(monkeypatch, job(rank(0))), ask)
    assert code in (400, 421) and "k3j0a1" not in text


def test_strangers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = Launcher()

    async def ask(client: TestClient[Any, Any]) -> Any:
        codes = [
            (await _kill(client, "x" * 5000))[0],
            (await client.get("/../server.py")).status,
            (await client.get("/static/index.html")).status,
            (await client.get("/kill")).status,
            (await client.delete("/state.json")).status,
        ]
        reader, writer = await asyncio.open_connection(client.host, client.port)
        writer.write(b"\x16\x03\x01 not HTTP\r\n\r\n")
        assert b"400" in await reader.readline()
        writer.close()
        async with (
            ClientSession() as session,
            session.get(client.make_url("/state.json")) as answer,
        ):
            assert answer.status == 200  # and it goes on
        return codes

    codes = asked(serves(monkeypatch, job(rank(0)), launcher=launcher), ask)
    assert codes == [413, 404, 404, 405, 405] and launcher.killed == []
