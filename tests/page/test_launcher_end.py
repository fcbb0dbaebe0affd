"""What the page's process hears from the launcher, and asks of it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

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
from hvd_ft.page import launcher_end as module
from hvd_ft.page.launcher_end import LauncherEnd
from hvd_ft.system.packets import Packets, packet_pair

LINK = LinkStatus(source="n0", dest="n1", kind="ring", state="open", transfers=3, stalled_seconds=0)


def heard(*packets: bytes) -> tuple[LauncherEnd, list[str]]:
    """Returns the page's end after the launcher has sent these and gone, and what was followed."""
    ours, theirs = packet_pair()
    launcher, end = Packets(ours), LauncherEnd(Packets(theirs))
    followed: list[str] = []

    def follow(directory: str) -> None:
        if directory == "gone":
            raise HvdFtError("it has ended")
        followed.append(directory)

    for packet in packets:
        launcher.send(packet)
    launcher.close()
    asyncio.run(end.listen(follow))
    return end, followed


def test_jobs_are_followed_until_the_launcher_ends() -> None:
    jobs = [to_packet(Follow(name)) for name in ("one", "gone", "two")]
    assert heard(*jobs)[1] == ["one", "two"]


def test_the_latest_links_are_those_of_the_present_job() -> None:
    of_job = to_packet(Links([LINK]))
    assert heard(of_job)[0].links == [LINK]
    assert heard(of_job, to_packet(Links([])))[0].links == []
    assert heard(of_job, to_packet(Follow("another")))[0].links == []


def asks(launcher: Callable[[Packets, asyncio.Task[str]], Awaitable[None]]) -> str:
    """Returns what the page learns of a request to kill rank 3."""

    async def run() -> str:
        ours, theirs = packet_pair()
        end = LauncherEnd(Packets(theirs))
        hearing = asyncio.create_task(end.listen(lambda _: None))
        task = asyncio.create_task(end.kill(3))
        packets = Packets(ours)
        await launcher(packets, task)
        try:
            return await task
        finally:
            packets.close()
            await hearing

    return asyncio.run(run())


async def _asked(packets: Packets) -> Kill:
    while not (packet := packets.receive()):
        await asyncio.sleep(0)
    return parse_from_page(packet)


def test_the_answer_to_this_request_counts() -> None:
    async def launcher(packets: Packets, task: asyncio.Task[str]) -> None:
        kill = await _asked(packets)
        assert kill.rank == 3
        packets.send(to_packet(KillAnswer(kill.number + 1, "of another")))
        packets.send(to_packet(KillAnswer(kill.number, "why")))
        packets.send(to_packet(KillAnswer(kill.number, "again")))

    assert asks(launcher) == "why"


def test_a_launcher_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.01)

    async def launcher(packets: Packets, task: asyncio.Task[str]) -> None:
        await _asked(packets)

    with pytest.raises(TimeoutError):
        asks(launcher)
