"""What the page answers, to those whom it should answer and to strangers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestClient, TestServer
from job_statuses import job, rank

from hvd_ft.page import server as module
from hvd_ft.page.server import Server
from hvd_ft.status.snapshot import JobStatus

TOKEN = "the token"


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


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The ranks that were killed."""
    found: list[tuple[str, int]] = []
    monkeypatch.setattr(module, "end_rank", lambda job, rank: found.append((job, rank)))
    return found


def serves(monkeypatch: pytest.MonkeyPatch, *statuses: JobStatus | None) -> Server:
    """Returns a server that has looked once at each of these."""
    sight = SightOf(*statuses)
    monkeypatch.setattr(module, "Sight", lambda directory: sight)
    made = Server(TOKEN, frozenset(["127.0.0.1", "localhost"]))
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
    monkeypatch: pytest.MonkeyPatch, killed: list[Any], last: JobStatus | None
) -> None:
    server = serves(monkeypatch, job(rank(0)), last)
    server.look()  # there is nothing more to read

    async def ask(client: TestClient[Any, Any]) -> Any:
        async with client.get("/state.json") as answer:
            state = await answer.json()
        return state, await _kill(client, '{"rank": 0}')

    state, (code, _) = asked(server, ask)
    assert state["ended"] and state["status"]["job"] == "k3j0a1"
    assert code == 409 and killed == []


def test_another_part_of_the_job_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    first = SightOf(job(rank(0)), None)
    second = SightOf(job(rank(0), job="another"))
    sights = iter([first, second])
    monkeypatch.setattr(module, "Sight", lambda directory: next(sights))
    server = Server(TOKEN, frozenset())
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


def test_who_has_the_token_kills_a_rank(
    monkeypatch: pytest.MonkeyPatch, killed: list[tuple[str, int]]
) -> None:
    server = serves(monkeypatch, job(rank(0), rank(1), rank(2, here=False, host="n1")))

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
    assert codes == [401, 401, 409, 409, 400, 400, 400, 409, 200]
    assert "rank 2 is on n1" in answers[7][1]
    assert killed == [("k3j0a1", 1)]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example", ""])
def test_a_page_that_dns_leads_here_is_refused(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    async def ask(client: TestClient[Any, Any]) -> Any:
        async with client.get("/state.json", headers={"Host": host}) as answer:
            return answer.status, await answer.text()

    code, text = asked(serves(monkeypatch, job(rank(0))), ask)
    assert code in (400, 421) and "k3j0a1" not in text


def test_strangers_are_refused(monkeypatch: pytest.MonkeyPatch, killed: list[Any]) -> None:
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

    codes = asked(serves(monkeypatch, job(rank(0))), ask)
    assert codes == [413, 404, 404, 405, 405] and killed == []
