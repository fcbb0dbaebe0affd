"""The page's side of its connection with the launcher."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from hvd_ft.errors import HvdFtError
from hvd_ft.job.page_messages import (
    Follow,
    Kill,
    KillAnswer,
    Links,
    LinkStatus,
    parse_to_page,
    to_packet,
)
from hvd_ft.system.packets import Packets

ANSWER_SECONDS = 5.0  # limit for the launcher to answer


class LauncherEnd:
    """The connection.

    Args:
        end: of the packets.

    Attributes:
        links: as the launcher has described them last.
    """

    def __init__(self, end: Packets) -> None:
        self._end = end
        self._number = 0
        self._asked: dict[int, asyncio.Future[str]] = {}
        self.links: list[LinkStatus] = []

    async def listen(self, follow: Callable[[str], None]) -> None:
        """Hears the launcher until it ends the connection.

        Args:
            follow: called with the directory of another job that is to be shown.
        """
        loop = asyncio.get_running_loop()
        over = asyncio.Event()

        def hear() -> None:
            packet = self._end.receive()
            if packet is None:
                loop.remove_reader(self._end.fileno())
                over.set()
            elif packet:
                self._take(packet, follow)

        loop.add_reader(self._end.fileno(), hear)
        await over.wait()

    def _take(self, packet: bytes, follow: Callable[[str], None]) -> None:
        match parse_to_page(packet):
            case Follow(directory):
                with contextlib.suppress(HvdFtError):  # it has ended by now
                    follow(directory)
                self.links = []
            case Links(links):
                self.links = links
            case KillAnswer(number, problem):
                answer = self._asked.get(number)
                if answer is not None and not answer.done():
                    answer.set_result(problem)

    async def kill(self, rank: int) -> str:
        """Asks the launcher to have a rank's worker killed, on whatever host it is.

        Args:
            rank: whose.

        Returns:
            Why it is not killed; "": it is.

        Raises:
            TimeoutError: the launcher does not answer.
        """
        self._number += 1
        number = self._number
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            if not self._end.send(to_packet(Kill(number, rank))):
                raise TimeoutError
            return await asyncio.wait_for(answer, ANSWER_SECONDS)
        finally:
            del self._asked[number]
