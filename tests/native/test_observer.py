"""An observer looks up the ranks of its job, and no memory behind them."""

from pathlib import Path

import pytest

from hvd_ft import native


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_that_the_job_does_not_have_is_refused(arena_dir: Path, rank: int) -> None:
    native.create_node(str(arena_dir), "job1", 2, 64 << 20)
    observer = native.Observer(str(arena_dir))
    look_ups = (
        *(observer.status, observer.left, observer.snapshots, observer.memory),
        *(observer.watch, observer.times, observer.clock_ahead_ns, observer.op_moments),
    )
    for look_up in look_ups:
        look_up(1)
        with pytest.raises(ValueError, match=f"there is no rank {rank} in a job of 2"):
            look_up(rank)
    observer.close()
