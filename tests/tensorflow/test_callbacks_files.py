"""Files of callbacks after two restarts are what they are undisturbed; traces go on."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_worker import FakeArena, FakeWorker, Killed, incarnation

tf = pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow", reason="Horovod is not built")

from keras_script import BATCH, Job, X, Y, end_process, fresh_process  # noqa: E402

from hvd_ft.errors import HvdFtError  # noqa: E402
from hvd_ft.native.types import Event, EventType  # noqa: E402
from hvd_ft.tensorflow import callbacks as hvd_callbacks  # noqa: E402
from hvd_ft.tensorflow import event_files  # noqa: E402
from hvd_ft.tensorflow.callback_state import CallbackState  # noqa: E402
from hvd_ft.tensorflow.csv_files import CsvFiles  # noqa: E402
from hvd_ft.tensorflow.file_callbacks import FileCallbacks  # noqa: E402

keras = tf.keras
STEPS = len(X) // BATCH
pytestmark = [pytest.mark.job]  # they take as long as one


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    end_process()


@contextlib.contextmanager
def process(arena: FakeArena, number: int) -> Iterator[FakeWorker]:
    """A process with an id of its own, which the names of its event files have too."""
    pid = 5_000_000 + number
    with incarnation(arena, number) as worker, pytest.MonkeyPatch.context() as patch:
        arena.events.append(Event(0, EventType.STARTED, 0, number, pid))
        patch.setattr(event_files, "_older", {})
        patch.setattr(os, "getpid", lambda: pid)
        make = tf.summary.create_file_writer
        for module in (tf.summary, tf.compat.v2.summary):
            patch.setattr(
                module, "create_file_writer", lambda place: make(place, filename_suffix=f".{pid}.0")
            )
        yield worker
    tf.summary.trace_off()  # a trace ends with its process
    with contextlib.suppress(tf.errors.UnavailableError):
        tf.profiler.experimental.stop(save=False)


Script = Callable[[Path, FakeWorker, int | None], None]


def run(folder: Path, kills: Sequence[int], script: Script) -> None:
    """Runs a script in one process after the other; each but the last is killed."""
    folder.mkdir()
    arena = FakeArena()
    for number, kill_after in enumerate(kills):
        with process(arena, number) as worker, pytest.raises(Killed):
            script(folder, worker, kill_after)
    with process(arena, len(kills)) as worker:
        script(folder, worker, None)


def fit(
    callbacks: Sequence[Any],
    worker: FakeWorker,
    kill_after: int | None,
    *,
    epochs: int = 2,
    model: Any = None,
) -> keras.Model:
    if model is None:
        fresh_process()
        model = keras.Sequential([keras.layers.Dense(1, input_shape=(3,))])
        model.compile(keras.optimizers.SGD(0.05), "mse")
    fellows = [Job(worker, kill_after), *callbacks]
    model.fit(X, Y, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=fellows)
    return model


def tables(folder: Path, worker: FakeWorker, kill_after: int | None, every: int) -> None:
    """Two fits, with loggers on either side of FaultTolerance; some files are there before."""
    if worker.incarnation == 0:
        for name in ("first.csv", "old.csv"):
            (folder / name).write_text("epoch,loss\n0,9.0\n")
    loggers = [
        keras.callbacks.CSVLogger(folder / "first.csv"),
        keras.callbacks.CSVLogger(folder / "both.csv", append=True),
        keras.callbacks.CSVLogger(folder / "old.csv", append=True),
    ]
    late = keras.callbacks.CSVLogger(folder / "late.csv", append=True, separator=";")
    saves = hvd_callbacks.FaultTolerance(every)
    model = fit([*loggers, saves, late], worker, kill_after)
    left = kill_after and kill_after - 2 * STEPS
    again = keras.callbacks.CSVLogger(folder / "second.csv")
    fit([again, *loggers[1:], saves, late], worker, left, model=model)


def check_tables(folder: Path, every: int, kills: Sequence[int]) -> None:
    def script(folder: Path, worker: FakeWorker, kill_after: int | None) -> None:
        tables(folder, worker, kill_after, every)

    run(folder / "undisturbed", [], script)
    run(folder / "killed", kills, script)
    paths = sorted((folder / "undisturbed").iterdir())
    assert [path.name for path in paths] == [
        f"{name}.csv" for name in ("both", "first", "late", "old", "second")
    ]
    for path in paths:
        assert (folder / "killed" / path.name).read_text() == path.read_text(), path.name
    assert (folder / "killed" / "old.csv").read_text().count("\n") == 2 + 4


@pytest.mark.shows
@pytest.mark.parametrize(
    ("every", "kills"),
    [
        (4, [STEPS + 1, STEPS + 1]),  # the snapshot is older than the first row
        (4, [STEPS + 3, STEPS + 5]),
        (2, [STEPS + 3, 2 * STEPS + 3]),  # in either fit
        (4, [3 * STEPS + 1, 3 * STEPS + 3]),
    ],
)
def test_tables_after_two_restarts(every: int, kills: Sequence[int], tmp_path: Path) -> None:
    check_tables(tmp_path, every, kills)


@pytest.mark.shows
@pytest.mark.parametrize("kills", [[STEPS + 3, STEPS + 1], [3 * STEPS + 2, 3 * STEPS + 1]])
def test_tables_after_two_restarts_without_a_snapshot(kills: Sequence[int], tmp_path: Path) -> None:
    check_tables(tmp_path, 1000, kills)


def events(folder: Path) -> list[Any]:
    """What TensorBoard would read there, but for times and speeds: tags and steps in order."""
    found = []
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            found += [(path.parent.name, value.tag, event.step) for value in event.summary.value]
    return sorted(found)


@pytest.mark.shows
@pytest.mark.parametrize(
    ("profile", "every", "kills"),
    [
        ((3, STEPS + 4), 2, [STEPS + 1, STEPS + 3]),  # both in the range
        ((1, 2), 2, [STEPS + 1, STEPS + 3]),  # every process's first step seems to be the range's
        ((3, STEPS + 4), 1000, [STEPS + 1, STEPS + 3]),  # before there is a snapshot
        ((2, 100), 2, [STEPS + 1, STEPS + 3]),  # until the end
    ],
)
def test_boards_after_two_restarts(
    profile: tuple[int, int], every: int, kills: Sequence[int], tmp_path: Path
) -> None:
    def script(folder: Path, worker: FakeWorker, kill_after: int | None) -> None:
        board = keras.callbacks.TensorBoard(
            folder / "board", profile_batch=profile, update_freq=3, write_steps_per_second=True
        )
        fit([board, hvd_callbacks.FaultTolerance(every)], worker, kill_after)

    run(tmp_path / "undisturbed", [], script)
    run(tmp_path / "killed", kills, script)
    expected = events(tmp_path / "undisturbed")
    assert [tag for _, tag, _ in expected if tag == f"batch_{profile[1]}"]
    assert events(tmp_path / "killed") == expected


def speeds(folder: Path) -> list[tuple[str, float]]:
    return [
        (value.tag, float(tf.make_ndarray(value.tensor)))
        for path in sorted(folder.rglob("events.out.tfevents.*"))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag.endswith("steps_per_second")
    ]


def test_a_speed_is_that_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock jumps by an hour whenever a process dies."""
    hours = [0.0]
    ticks = iter(range(1_000_000))
    monkeypatch.setattr("keras.src.callbacks.time.time", lambda: hours[0] + next(ticks) / 1000)

    def script(folder: Path, worker: FakeWorker, kill_after: int | None) -> None:
        hours[0] += 3600
        board = keras.callbacks.TensorBoard(
            folder, update_freq=1, write_steps_per_second=True, write_graph=False
        )
        fit([board, hvd_callbacks.FaultTolerance(2)], worker, kill_after)

    run(tmp_path / "killed", [STEPS + 3, STEPS + 5], script)
    found = speeds(tmp_path / "killed")
    assert {tag for tag, _ in found} == {"batch_steps_per_second", "epoch_steps_per_second"}
    assert all(5 < speed <= 1000 for _, speed in found), found


@pytest.mark.parametrize("text", ["", "[]", '{"0": 5}', '{"0": ["5"]}', "[" * 100_000, "\0"])
def test_a_damaged_note_of_lengths_is_said_and_written_anew(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is in the file then counts, as for a fit that begins."""
    logger = keras.callbacks.CSVLogger(tmp_path / "a.csv", append=True)
    logger.on_train_begin()
    (tmp_path / "a.csv").write_text("epoch\n0\n")
    worker = SimpleNamespace(directory=str(tmp_path), rank=0)
    note = tmp_path / "tables-0.json"
    note.write_text(text)
    CsvFiles([logger], worker).begin(0)
    assert "tables-0.json is damaged (" in capsys.readouterr().err
    assert json.loads(note.read_text()) == {"0": [8]}
    assert (tmp_path / "a.csv").read_text() == "epoch\n0\n"


def test_what_says_something_of_a_process_is_not_restored() -> None:
    board = keras.callbacks.TensorBoard("somewhere", profile_batch=(2, 3))
    logger = keras.callbacks.CSVLogger("somewhere.csv", append=True)
    state = CallbackState([board, logger])
    board._is_tracing = board._profiler_started = True
    board._batch_start_time = 5.0
    board._global_train_batch = 7
    logger.append_header, logger.keys = False, ["loss"]
    assert state.changes() == {
        "TensorBoard/0": {"_global_train_batch": 7},
        "CSVLogger/0": {"keys": ["loss"]},
    }


def test_weights_are_not_loaded_from_what_a_dead_process_wrote(tmp_path: Path) -> None:
    """They would be of another step than those of the other ranks."""
    path = str(tmp_path / "weights.h5")
    loading = keras.callbacks.ModelCheckpoint(path, load_weights_on_restart=True)
    own = keras.callbacks.ModelCheckpoint(path)
    arena = FakeArena()
    with process(arena, 0) as worker:
        FileCallbacks([own], worker)
        with pytest.raises(HvdFtError, match="leave load_weights_on_restart out"):
            FileCallbacks([own, loading], worker)
