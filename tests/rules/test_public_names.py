"""What a script finds in `hvd_ft.tensorflow`, and how it begins and ends."""

import atexit
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fake_worker import FakeArena, incarnation

pytest.importorskip("tensorflow")
hvd_tf = pytest.importorskip("horovod.tensorflow", reason="Horovod is not built")

import horovod.tensorflow.keras as hvd_keras  # noqa: E402

import hvd_ft.tensorflow as ours  # noqa: E402
import hvd_ft.tensorflow.keras as ours_keras  # noqa: E402
from hvd_ft.errors import HvdFtError  # noqa: E402
from hvd_ft.tensorflow import basics  # noqa: E402
from hvd_ft.worker import begin, peer_hooks  # noqa: E402
from hvd_ft.worker.exit_status import prepare_exit  # noqa: E402

OURS = {"init", "callbacks", "keras"}


@pytest.mark.parametrize(("mine", "theirs"), [(ours, hvd_tf), (ours_keras, hvd_keras)])
def test_all_of_horovod_is_there(mine: Any, theirs: Any) -> None:
    for name in vars(theirs):
        if name not in OURS and not name.startswith("__"):
            assert getattr(mine, name) is getattr(theirs, name), name
    assert mine.init is basics.init
    assert mine.State is ours.State
    assert mine.ElasticSampler is ours.ElasticSampler
    assert mine.on_restart is peer_hooks.on_restart
    assert mine.incarnation() == 0
    assert not mine.enabled()


def test_callbacks_are_horovods_and_ours() -> None:
    assert ours.callbacks is ours_keras.callbacks
    assert ours.keras is ours_keras
    for name in ("BroadcastGlobalVariablesCallback", "MetricAverageCallback"):
        assert getattr(ours.callbacks, name) is getattr(hvd_keras.callbacks, name)
    assert ours.callbacks.FaultTolerance


def test_the_hooks_for_estimators_come_when_they_are_asked_for() -> None:
    pytest.importorskip("tensorflow_estimator")
    code = """if True:
        import sys
        import hvd_ft.tensorflow as hvd
        assert "hvd_ft.tensorflow.estimator" not in sys.modules
        print(*sorted(name for name in vars(hvd.estimator) if name[0].isupper()))
        print(hvd.estimator.run_config.__module__)
    """
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    out = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True)
    assert out.stdout.decode().splitlines() == [
        "EpochTiming FaultTolerance",
        "hvd_ft.tensorflow.estimator.memory",
    ]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What happens in init, without a real Horovod: calls in order."""
    calls: list[Any] = []
    weakref.finalize(prepare_exit, int).detach()  # its own exit is registered by the first one
    monkeypatch.setattr(basics._horovod, "init", lambda *args: calls.append(("init", args)))
    monkeypatch.setattr(basics._horovod, "rank", lambda: 0)
    monkeypatch.setattr(peer_hooks, "start", lambda: calls.append("hooks"))
    monkeypatch.setattr(atexit, "register", calls.append)
    monkeypatch.setattr(sys, "excepthook", lambda *error: calls.append("excepthook"))
    prepare_exit.cache_clear()
    begin.say_stock.cache_clear()
    yield calls
    prepare_exit.cache_clear()
    begin.say_stock.cache_clear()


def test_without_an_agent_init_is_horovods_and_says_so_once(
    begun: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    ours.init([0], "dynamic")
    ours.init()
    assert begun == [("init", ([0], "dynamic")), ("init", (None, None))]
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("hvdft: no agent, so this is stock Horovod")


def test_the_exit_is_marked_after_horovods_shutdown(begun: list[Any]) -> None:
    with incarnation(FakeArena(), 0) as worker:
        ours.init()
        ours.init()
    mark: Callable[[], None] = begun[0]
    # Registered before Horovod's own, so called after it; and once. The others pass drills' points.
    assert [what for what in begun if not callable(what)] == [
        ("init", (None, None)),
        "hooks",
    ] * 2
    assert list(map(callable, begun)) == [True, True, False, True, False, False, False]
    assert not worker.orderly
    mark()
    assert worker.orderly


def test_an_uncaught_exception_ends_the_process_at_once(
    begun: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "_exit", begun.append)
    with incarnation(FakeArena(), 0) as worker:
        ours.init()
    sys.excepthook(ValueError, ValueError(), None)
    assert begun[-2:] == ["excepthook", 1], "first the traceback, then no atexit function"
    assert not worker.orderly


class SetOfCommunicator:
    """A process set that was made of an MPI communicator."""

    mpi_comm = object()


@pytest.mark.parametrize("argument", [{"comm": [0]}, {"process_sets": [SetOfCommunicator()]}])
def test_what_the_ft_backend_lacks_is_named(begun: list[Any], argument: dict[str, Any]) -> None:
    with incarnation(FakeArena(), 0), pytest.raises(HvdFtError, match="a communicator is"):
        ours.init(**argument)
    assert begun == []
