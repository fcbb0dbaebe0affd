"""What a restarted process saves, exports and pickles is what it would have without the kills."""

import io
import json
import pickle
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_worker import FakeArena, FakeWorker, Killed, incarnation

tf = pytest.importorskip("tensorflow")
hvd = pytest.importorskip("horovod.tensorflow.keras", reason="Horovod is not built")

import h5py  # noqa: E402
from keras_script import BATCH, Job, X, Y, end_process, fresh_process  # noqa: E402
from tensorflow.core.protobuf import trackable_object_graph_pb2  # noqa: E402
from tensorflow.python.saved_model import loader_impl  # noqa: E402

from hvd_ft.tensorflow import callbacks as hvd_callbacks  # noqa: E402
from hvd_ft.tensorflow.keras_api import KERAS_3  # noqa: E402

keras = tf.keras
EPOCHS = 2
pytestmark = [  # job: they take as long as one
    pytest.mark.skipif(KERAS_3, reason="these are the formats of Keras 2"),
    pytest.mark.job,
    pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5", "ignore:.*deprecat"),
]


@pytest.fixture(autouse=True)
def _one_rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Horovod's optimizer as it is, in a job of one rank whose gradients are the average."""
    monkeypatch.setattr(
        "horovod.tensorflow._allreduce_cond", lambda gradient, *_, **__: tf.identity(gradient)
    )
    monkeypatch.setattr(type(hvd.global_process_set), "size", lambda _: 1)
    yield
    end_process()


class Writing(keras.callbacks.Callback):
    """Saves the model in every way that there is, each epoch into the same files."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.epochs: list[int] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append(epoch)
        model, place = self.model, self.folder / str(epoch)
        place.mkdir(parents=True, exist_ok=True)
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(str(place / "before"))
        model.save(place / "saved")
        model.save(place / "model.keras")
        if not isinstance(model, Own):
            model.save(place / "model.h5")
            (place / "clone").write_text(keras.models.clone_model(model).to_json())
        model.export(str(place / "exported"))
        model.save_weights(place / "weights.h5")
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(str(place / "after"))
        configs = [model.get_config(), keras.optimizers.serialize(model.optimizer)]
        (place / "configs").write_text(json.dumps(configs, default=str))
        objects = [model.history.history, logs, self.epochs, model.optimizer.iterations.numpy()]
        (place / "objects").write_bytes(pickle.dumps(objects))


def plain() -> keras.Model:
    layers = [
        keras.layers.Dense(4, input_shape=(3,)),
        keras.layers.Dropout(0.3),
        keras.layers.BatchNormalization(),
        keras.layers.Dense(1),
    ]
    return keras.Sequential(layers)


class Own(keras.Model):
    """A model of the user's, whose layers are in Python, with a traced function of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(4, activation="relu")
        self.out = keras.layers.Dense(1)

    @tf.function
    def scaled(self, x: tf.Tensor) -> tf.Tensor:
        return self.hidden(x) * 0.5

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.out(self.scaled(x))

    def get_config(self) -> dict[str, Any]:
        return {}


def optimizer() -> Any:
    return hvd.DistributedOptimizer(keras.optimizers.Adam(0.01))


def legacy() -> Any:
    return hvd.DistributedOptimizer(keras.optimizers.legacy.Adam(0.01))


def summing() -> Any:
    return hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), backward_passes_per_step=2)


def train(
    folder: Path,
    make: Callable[[], keras.Model],
    make_optimizer: Callable[[], Any],
    worker: FakeWorker,
    kill_after: int | None,
) -> None:
    """The user's script."""
    fresh_process()
    model = make()
    model.compile(make_optimizer(), "mse", metrics=["mae"])
    fellows = [Job(worker, kill_after), hvd_callbacks.FaultTolerance(2), Writing(folder)]
    model.fit(X, Y, batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=fellows)
    model.save_weights(folder / "at the end.h5")


def saved_model(folder: Path) -> Any:
    """Its objects, with what hangs on each, and its values."""
    [graph] = loader_impl.parse_saved_model(str(folder)).meta_graphs
    objects = graph.object_graph_def
    paths = {0: ""}
    found = []
    for number in list_grows(paths):
        node = objects.nodes[number]
        functions = list(node.function.concrete_functions)
        found.append((paths[number], node.WhichOneof("kind"), len(functions)))
        for child in node.children:
            paths.setdefault(child.node_id, f"{paths[number]}/{child.local_name}")
    ops = {node.op for function in graph.graph_def.library.function for node in function.node_def}
    return sorted(found), sorted(ops), checkpoint(folder / "variables" / "variables")


def list_grows(paths: dict[int, str]) -> Iterator[int]:
    done: set[int] = set()
    while rest := [number for number in paths if number not in done]:
        done.add(rest[0])
        yield rest[0]


def checkpoint(prefix: Path) -> Any:
    reader = tf.train.load_checkpoint(str(prefix))
    names = sorted(reader.get_variable_to_shape_map())
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
    children = [sorted(c.local_name for c in node.children) for node in graph.nodes]
    # The key of draws without a seed is each job's own.
    values = [n for n in names if n != "_CHECKPOINTABLE_OBJECT_GRAPH" and "hvd_ft_draws" not in n]
    return names, children, [(name, reader.get_tensor(name).tolist()) for name in values]


def h5(file: Any) -> Any:
    found = []
    with h5py.File(file, "r") as opened:

        def visit(name: str, item: Any) -> None:
            attributes = {key: np.asarray(value).tolist() for key, value in item.attrs.items()}
            data = item[()].tolist() if isinstance(item, h5py.Dataset) else None
            found.append((name, attributes, data))

        opened.visititems(visit)
        found.append(("", {key: str(value) for key, value in opened.attrs.items()}, None))
    return found


def archive(path: Path) -> Any:
    with zipfile.ZipFile(path) as opened:
        texts = [opened.read("config.json").decode()]
        return sorted(opened.namelist()), texts, h5(io.BytesIO(opened.read("model.weights.h5")))


def written(folder: Path) -> dict[str, Any]:
    """Reads everything that was saved there."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if (path / "saved_model.pb").exists():
            found[name] = saved_model(path)
        elif path.suffix == ".keras":
            found[name] = archive(path)
        elif path.suffix == ".h5":
            found[name] = h5(path)
        elif path.suffix == ".index" and path.parent.name != "variables":
            found[name] = checkpoint(path.with_suffix(""))
        elif path.name == "objects":
            found[name] = repr(pickle.loads(path.read_bytes()))  # with the types of numbers
        elif path.name in ("configs", "clone"):
            found[name] = path.read_text()
    return found


def run(
    folder: Path,
    kills: Sequence[int],
    make: Callable[[], keras.Model],
    make_optimizer: Callable[[], Any],
) -> dict[str, Any]:
    arena = FakeArena()
    for number, kill_after in enumerate(kills):
        with incarnation(arena, number) as worker, pytest.raises(Killed):
            train(folder, make, make_optimizer, worker, kill_after)
    with incarnation(arena, len(kills)) as worker:
        train(folder, make, make_optimizer, worker, None)
    assert worker.jumps == ([0] if kills else [])
    return written(folder)


@pytest.mark.shows
@pytest.mark.parametrize(
    ("make", "make_optimizer"),
    [(plain, optimizer), (Own, optimizer), (plain, legacy), (plain, summing)],
    ids=["sequential", "subclassed", "legacy", "summing"],
)
def test_what_is_written_is_the_same_after_two_restarts(
    make: Callable[[], keras.Model], make_optimizer: Callable[[], Any], tmp_path: Path
) -> None:
    expected = run(tmp_path / "undisturbed", [], make, make_optimizer)
    # The first epoch is written by the second process, the second epoch by the third.
    found = run(tmp_path / "killed", [5, 9], make, make_optimizer)
    assert found.keys() == expected.keys() and {"0/saved", "1/objects"} < found.keys()
    for name, value in expected.items():
        assert found[name] == value, name
    # It has to load where there is no Horovod, whichever process has written it.
    objects, _, _ = found["1/saved"]
    assert [path for path, _, _ in objects if "allreduce" in path] == []
    assert any(path.startswith("/optimizer") for path, _, _ in objects)
