"""What `hvd.init` refuses, and what it does beside starting Horovod."""

import gc

import pytest
from fake_worker import FakeArena, incarnation

pytest.importorskip("horovod.tensorflow", reason="Horovod is not built")

from hvd_ft.errors import HvdFtError
from hvd_ft.tensorflow import basics
from hvd_ft.worker import begin


@pytest.mark.parametrize("steps", ["0", "-3", "ten"])
def test_autotuning_without_a_step_is_refused(monkeypatch: pytest.MonkeyPatch, steps: str) -> None:
    monkeypatch.setenv("HOROVOD_AUTOTUNE", "1")
    monkeypatch.setenv("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", steps)
    with incarnation(FakeArena(), 0), pytest.raises(HvdFtError, match=f"SAMPLE={steps} is not a"):
        basics.init()


def test_what_has_been_imported_is_left_out_of_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    for place, name in (
        (begin, "prepare_exit"),
        (begin, "prepare_end"),
        (basics._horovod, "init"),
        (begin.peer_hooks, "start"),
    ):
        monkeypatch.setattr(place, name, lambda *_: None)
    begin.leave_modules_out_of_collections.cache_clear()
    gc.unfreeze()
    with incarnation(FakeArena(), 0):
        basics.init()
        assert gc.get_freeze_count() > 100_000
        gc.unfreeze()
        basics.init()  # is not the first, so the script may have changed its mind
        assert gc.get_freeze_count() == 0
    gc.freeze()
