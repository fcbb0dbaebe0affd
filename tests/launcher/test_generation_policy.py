"""Whether new agents are started when mpirun has ended."""

from hvd_ft.launcher.generations import (
    Again,
    GenerationPolicy,
    NotYet,
    Over,
    agents_lost,
)

from hvd_ft.job.lifeline import ShimStatus
from hvd_ft.job.settings import Settings

HOST = "n0/1"
POLICY = Settings(max_failures=2, failure_window_seconds=10)
WELL, ORPHANED = ShimStatus(0, HOST, 0, False), ShimStatus(1, HOST, 0, True)


def test_when_new_agents_are_started() -> None:
    policy = GenerationPolicy(POLICY)
    assert isinstance(policy.ended([], 0), Over)
    assert isinstance(policy.ended([WELL, ORPHANED], 0, over=True), Over)
    assert isinstance(policy.ended([WELL, None], 0), NotYet)
    assert isinstance(policy.ended([WELL, ORPHANED], 0), Again)
    for _ in range(5):  # hosts, or links, are the cause
        assert isinstance(policy.ended([WELL, ORPHANED], 0, counts=False), Again)
    assert isinstance(policy.ended([ORPHANED], 1), Again)
    verdict = policy.ended([ORPHANED], 9)
    assert isinstance(verdict, Over)
    assert verdict.message.startswith("agents or mpirun failed 3 times within 10 s")
    assert isinstance(policy.ended([ORPHANED], 30), Again)


def test_whose_agents_are_lost() -> None:
    assert agents_lost([None, WELL, ORPHANED], 0)
    assert not agents_lost([None, WELL, ORPHANED], 1)  # not yet taken over
