"""A waiter for a job's news is woken when there is some, and only then."""

import os
import threading
from typing import cast

from hvd_ft.agent.event_watch import JobNews
from hvd_ft.native.agent import Agent
from hvd_ft.native.types import WaitResult


class ScriptedAgent:
    """Its waits come back with these results, one after the other."""

    event_count = 0

    def __init__(self, *results: WaitResult) -> None:
        self._results = list(results)
        self.at_the_last = threading.Event()

    def wait(self, _seen: int, _timeout_ms: int) -> WaitResult:
        result = self._results.pop(0)
        if not self._results:
            self.at_the_last.set()
        return result

    def wake(self) -> None:
        """Nothing sleeps here."""


def test_a_ring_for_somebody_else_is_no_news() -> None:
    nothing, event = WaitResult.NOTHING, WaitResult.EVENT
    agent = ScriptedAgent(nothing, event, nothing, nothing, event, WaitResult.STOPPED)
    with JobNews(cast(Agent, agent)) as news:
        written = os.dup(news.fileno())
        assert agent.at_the_last.wait(10)
    assert os.eventfd_read(written) == 3
    os.close(written)
    assert news.over
