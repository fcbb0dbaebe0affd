"""From which of its snapshots a restarted process goes on."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

from hvd_ft.errors import HvdFtError
from hvd_ft.native.core import Worker
from hvd_ft.native.types import Snapshot
from hvd_ft.worker.restart import latest, latest_whole
from hvd_ft.worker.shared_contents import Part, fingerprints, freeze


def stored(step: int) -> tuple[Snapshot, bytearray]:
    """A snapshot of one rank, as it lies in the arena."""
    kept, values = freeze({"w": np.full(3, step)}, {"step": step})
    part = Part(kept, values, [], 0, 1, prints=fingerprints(kept, step, 10 * step))
    room = bytearray(part.bytes)
    for _ in part.write(np.frombuffer(room, np.uint8)):
        pass
    return Snapshot(step, 10 * step, len(room), 0, 0), room


class Arena:
    """A rank's snapshots, the latest one first; some of them may be passed over."""

    rank = 3

    def __init__(self, steps: Sequence[int], may_refuse: int) -> None:
        self.found = [stored(step) for step in steps]
        self._may_refuse = may_refuse

    def snapshot_read(self, loop: int) -> tuple[Snapshot, memoryview] | None:
        if not self.found:
            return None
        about, room = self.found[0]
        if about.bytes != len(room):
            raise HvdFtError("node.arena is damaged: by its account it has other bytes")
        return about, memoryview(room)

    def snapshot_refuse(self, loop: int) -> bool:
        if not self._may_refuse:
            return False
        self._may_refuse -= 1
        self.found.pop(0)
        return True

    def damage(self, number: int) -> None:
        room = self.found[number][1]
        room[-1] ^= 16

    def truncate(self, number: int) -> None:
        del self.found[number][1][-1]


def step_of(found: tuple[Any, dict[str, Any]] | None) -> int | None:
    if found is None:
        return None
    arrays, values = found
    assert arrays["w"].tolist() == [values["step"]] * 3
    return int(values["step"])


def whole(arena: Arena) -> int | None:
    return step_of(latest_whole(cast(Worker, arena), 0))


@pytest.mark.parametrize("may_refuse", [0, 1])
def test_the_latest_one_if_it_is_whole(may_refuse: int, capsys: pytest.CaptureFixture[str]) -> None:
    arena = Arena([8, 4], may_refuse)
    assert whole(arena) == 8
    assert step_of(latest(cast(Worker, arena), 0)) == 8
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("steps", "goes_on", "said"),
    [([8, 4], 4, "the one before"), ([4], None, "the loop's beginning")],
)
@pytest.mark.parametrize("harm", [Arena.damage, Arena.truncate])
def test_the_one_before_if_that_was_not_published(
    steps: list[int],
    goes_on: int | None,
    said: str,
    harm: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arena = Arena(steps, 1)
    harm(arena, 0)
    assert whole(arena) == goes_on
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"hvdft: rank 3 goes back to {said}: its latest snapshot of training ")
    assert "loop 0 cannot be used: " in line
    assert "damaged" in line


@pytest.mark.parametrize(("both", "may_refuse"), [(False, 0), (True, 1)])
def test_none_if_the_log_need_not_reach_back(both: bool, may_refuse: int) -> None:
    arena = Arena([8, 4], may_refuse)
    arena.damage(0)
    if both:
        arena.damage(1)
    with pytest.raises(HvdFtError, match=r"loop 0 cannot be used: it is damaged: .* start the job"):
        whole(arena)


def test_what_is_damaged_after_it_was_found_ends_the_job() -> None:
    arena = Arena([8, 4], 1)
    assert whole(arena) == 8
    arena.damage(0)
    with pytest.raises(HvdFtError, match="loop 0 cannot be used: it is damaged: "):
        latest(cast(Worker, arena), 0)
