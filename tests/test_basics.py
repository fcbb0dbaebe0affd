"""What Horovod can do and the ft backend cannot is an error of `init`, not a hang."""

import pytest
from fake_worker import FakeArena, incarnation

pytest.importorskip("horovod.tensorflow", reason="Horovod is not built")

from hvd_ft.errors import HvdFtError
from hvd_ft.tensorflow import basics


def test_autotuning_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_AUTOTUNE", "1")
    with incarnation(FakeArena(), 0), pytest.raises(HvdFtError, match="leave HOROVOD_AUTOTUNE and"):
        basics.init()
