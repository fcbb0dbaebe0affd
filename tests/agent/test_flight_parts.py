"""An agent's part of a flight record: when it is sent, and which worker is asked for stacks."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hvd_ft import native
from hvd_ft.agent import flight_parts, stacks
from hvd_ft.agent.flight_parts import FlightParts
from hvd_ft.agent.job_context import JobContext
from hvd_ft.agent.stacks import StackReader
from hvd_ft.job.placement import Nodes
from hvd_ft.job.settings import Settings

TRACE = 'Current thread 0x01 (most recent call first):\n  File "train.py", line 7 in step\n'


class Agent:
    """Rank 0's or rank 1's, on a clock of the test's own."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path, rank: int) -> None:
        self.now = 100.0
        self.asked = 0
        self.sent: list[tuple[int, dict[str, Any]]] = []
        patch.setattr(flight_parts.time, "monotonic", lambda: self.now)
        context = JobContext(rank, Settings(), Nodes((0, 2)), "job1", str(folder))
        self.reader = StackReader(str(folder), rank)
        self.observer = native.Observer(str(folder))
        self.parts = FlightParts(
            context,
            self.observer,
            self.reader,
            ask=self.ask,
            send=lambda number, part: self.sent.append((number, part)),
            volunteers=True,
        )

    def ask(self) -> None:
        self.asked += 1

    def writes(self, text: str) -> None:
        with open(self.reader.path, "w", encoding="ascii") as pipe:
            pipe.write(text)
        self.reader.read()
        self.parts.on_readable()


@pytest.fixture(params=[0, 1])
def agent(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, arena_dir: Path
) -> Iterator[Agent]:
    native.create_node(str(arena_dir), "job1", 2, 64 << 20)
    agent = Agent(monkeypatch, arena_dir, request.param)
    yield agent
    agent.observer.close()
    agent.reader.close()


def test_a_part_has_the_stacks_and_that_of_the_first_rank_its_node(agent: Agent) -> None:
    agent.parts.begin(3, os.getpid())
    assert agent.asked == 1
    agent.writes(TRACE)
    agent.parts.look()
    assert agent.sent == [], "the rest may follow"
    agent.now = agent.parts.look_at
    agent.parts.look()
    [(number, part)] = agent.sent
    assert number == 3
    assert part["stacks"] == TRACE
    assert ("node" in part) == (agent.reader.path.endswith("-0"))
    assert agent.parts.look_at == float("inf")
    assert agent.reader.copy is None


@pytest.mark.parametrize(
    ("prepared", "why"), [(True, "its Python does not answer"), (False, "not imported hvd_ft")]
)
def test_a_worker_that_does_not_answer_is_not_waited_for(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, prepared: bool, why: str
) -> None:
    monkeypatch.setattr(stacks, "catches", lambda *_: prepared)
    agent.parts.begin(3, os.getpid())
    agent.now = agent.parts.look_at
    assert agent.now < 102.0
    agent.parts.look()
    assert why in agent.sent[0][1]["stacks"]


def test_a_worker_that_cannot_answer_is_not_asked(agent: Agent) -> None:
    agent.parts.begin(3, None)
    assert agent.asked == 0, "the signal would kill it"
    agent.parts.look()
    assert "no worker that has called hvd.init()" in agent.sent[0][1]["stacks"]


def test_stacks_of_another_request_go_to_both(agent: Agent) -> None:
    agent.parts.begin(3, os.getpid())
    agent.writes(TRACE)
    assert agent.reader.take() == TRACE
    agent.parts.finish()
    assert agent.sent[0][1]["stacks"] == TRACE


def test_an_agent_that_ends_sends_what_it_has(agent: Agent) -> None:
    agent.parts.begin(0, os.getpid())
    agent.parts.finish()
    agent.parts.finish()
    [(number, part)] = agent.sent
    assert number == 0
    assert part["stacks"] == "it ended with the job before it answered"


def test_stacks_of_a_worker_that_has_ended_are_read(agent: Agent) -> None:
    agent.parts.begin(0, os.getpid())
    assert 0 < agent.parts.seconds_left < 2
    with open(agent.reader.path, "w", encoding="ascii") as pipe:
        pipe.write(TRACE)
    agent.parts.finish()
    assert agent.sent[0][1]["stacks"] == TRACE
    assert agent.parts.seconds_left == 0


def test_a_worker_that_is_not_asked_is_not_held(agent: Agent) -> None:
    assert agent.parts.seconds_left == 0
    agent.parts.begin(0, None)
    assert agent.parts.seconds_left == 0
