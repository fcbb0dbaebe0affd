"""What an agent tells the shim that takes a dead one's place."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from hvd_ft.agent import shim_care
from hvd_ft.agent.shim_care import ShimCare
from hvd_ft.job.launch import Launch
from hvd_ft.job.settings import Settings
from hvd_ft.shim.client import ShimClient
from hvd_ft.shim.messages import Attend


class Shim:
    """Notes what it is told of the launcher."""

    pid, found, end_seconds = 1, None, 0.0

    def __init__(self) -> None:
        self.known: list[bool] = []

    def attend(self, order: Attend) -> None:
        self.known.append(order.known)

    def replace(self, *_args: object) -> None:
        pass

    watch_job = keep = start = replace


@pytest.mark.parametrize("told", [[], [False], [False, True], [True, False]])
def test_the_next_shim_knows_whether_the_launcher_was_reached(
    told: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it gives up a launcher whose host has died meanwhile."""
    monkeypatch.setattr(shim_care, "end_rank", lambda *_args: None)
    monkeypatch.setattr(shim_care, "kill_descendants", lambda *_args: [])
    shim, launch = Shim(), Launch()
    context = SimpleNamespace(
        settings=Settings(), launch=launch, rank=3, job="j", directory="", arenas=""
    )
    care = ShimCare(
        cast(ShimClient, shim),
        cast(Any, context),
        env={},
        command=[],
        spares=0,
        checkpoint_writer=None,
        facts=lambda: None,
        reap=lambda: None,
    )
    for known in told:
        care.answered(launcher_known=known)
    for _ in range(2):
        care.replace()
    assert shim.known == [any(told)] * 2
