"""A session that is killed and resumed ends as if nothing had happened, bit for bit."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_worker import FakeArena, FakeWorker, Killed, incarnation

tf = pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow", reason="Horovod is not built")
stock = pytest.importorskip("tensorflow_estimator.python.estimator.estimator")

from tensorflow.python.eager import context  # noqa: E402
from tensorflow.python.ops import stateful_random_ops  # noqa: E402

from hvd_ft.errors import HvdFtError  # noqa: E402
from hvd_ft.tensorflow import estimator as ours  # noqa: E402
from hvd_ft.tensorflow.estimator import training  # noqa: E402
from hvd_ft.tensorflow.estimator.graph import Draws, SessionVariables  # noqa: E402
from hvd_ft.tensorflow.estimator.outside import OutsideVariables  # noqa: E402

v1 = tf.compat.v1
pytestmark = [  # job: they take as long as one
    pytest.mark.job,
    pytest.mark.filterwarnings("ignore:.*deprecated", "ignore:non-integer arguments"),
]
X = np.arange(84, dtype=np.float32).reshape(28, 3) / 50
Y = np.sin(X.sum(axis=1, keepdims=True))
STEPS = 12
OUTSIDE = "outside"  # a collection


class Job(v1.train.SessionRunHook):
    """Does a collective a step, counts, and dies after the given step of the process."""

    def __init__(self, worker: FakeWorker, kill_after: int | None) -> None:
        self._worker, self._kill_after = worker, kill_after
        self.runs = 0
        self.sums: list[float] = []

    def begin(self) -> None:
        graph = tf.compat.v1.get_default_graph()
        self._loss = graph.get_collection(v1.GraphKeys.LOSSES)[-1]

    def before_run(self, run_context: Any) -> Any:
        return v1.train.SessionRunArgs(self._loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.runs += 1
        self.sums.append(float(run_values.results))
        self._worker.collective(f"step {float(run_values.results)!r}")
        if self.runs == self._kill_after:
            raise Killed


class Seldom(Job):
    """Has a random number of its own drawn in some runs, and says in which before they begin."""

    def begin(self) -> None:
        self._loss = tf.random.uniform([])

    def before_run(self, run_context: Any) -> Any:
        return super().before_run(run_context) if self.runs % 4 else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        drawn = 0.0 if run_values.results is None else run_values.results
        super().after_run(run_context, SimpleNamespace(results=drawn))


def dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).shuffle(28, seed=3).repeat().batch(4)


def noisy() -> tf.data.Dataset:
    return dataset().map(lambda x, y: ({"x": x["x"] + tf.random.uniform([3], seed=4)}, y))


def tensors() -> Any:
    return v1.data.make_one_shot_iterator(dataset()).get_next()


def ending() -> tf.data.Dataset:
    return dataset().take(STEPS)


def queue() -> Callable[[], Any]:
    return v1.estimator.inputs.numpy_input_fn({"x": X}, Y, 4, num_epochs=None, shuffle=False)


def dense(x: Any, labels: Any) -> Any:
    hidden = v1.layers.dropout(v1.layers.dense(x, 4), 0.3, training=True)
    hidden = v1.layers.batch_normalization(hidden, training=True)
    with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
        return v1.layers.dense(hidden, 1)


def local(x: Any, labels: Any) -> Any:
    kinds = [v1.GraphKeys.LOCAL_VARIABLES]
    runs = v1.get_variable("runs", [], trainable=False, collections=kinds)
    with tf.control_dependencies([v1.assign_add(runs, 1.0)]):
        return v1.layers.dense(x * tf.sin(runs.read_value()), 1)


def old_variables(x: Any, labels: Any) -> Any:
    with v1.variable_scope("old", use_resource=False):
        return tf.matmul(x, v1.get_variable("w", [3, 1])) + v1.get_variable("b", [1])


def sparse(x: Any, labels: Any) -> Any:
    table = v1.get_variable("table", [200, 4], use_resource=True)
    rows = tf.nn.embedding_lookup(table, tf.cast(x[:, 0] * 50, tf.int32))
    return tf.reduce_sum(rows, axis=1, keepdims=True)


def generator(x: Any, labels: Any) -> Any:
    return v1.layers.dense(x + tf.random.Generator.from_seed(7).normal([3]), 1)


def make(model: Callable[..., Any] | None) -> Any:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        output = model(features["x"], labels)
        loss = tf.reduce_mean(tf.square(output - labels))
        op = v1.train.AdamOptimizer(0.05).minimize(loss, v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=op)

    config = tf.estimator.RunConfig(tf_random_seed=5, save_checkpoints_steps=5)
    config = ours.memory.in_memory(config)
    if model is None:
        columns = [tf.feature_column.numeric_column("x", (3,))]
        return tf.estimator.DNNRegressor([4], columns, dropout=0.3, config=config)
    return tf.estimator.Estimator(model_fn, config=config)


def train(
    worker: FakeWorker,
    kill_after: int | None,
    model: Callable[..., Any] | None = dense,
    input_fn: Any = dataset,
    job_type: type[Job] = Job,
    **length: int,
) -> tuple[dict[str, np.ndarray], list[float]]:
    """The user's script: two trainings, of which the second dies if the first does not."""
    tf.keras.utils.set_random_seed(7)
    trained, keep = make(model), ours.FaultTolerance(3)
    sums: list[float] = []
    for _ in range(2):
        job = job_type(worker, kill_after)
        trained.train(input_fn, [job, keep], **(length or {"steps": STEPS}))
        kill_after = None if kill_after is None else kill_after - job.runs
        sums += job.sums
    values = {name: trained.get_variable_value(name) for name in trained.get_variable_names()}
    return values, sums


def resumed(kill_after: int, **args: Any) -> tuple[Any, FakeWorker]:
    arena = FakeArena()
    with incarnation(arena, 0) as worker, pytest.raises(Killed):
        train(worker, kill_after, **args)
    with incarnation(arena, 1) as worker:
        return train(worker, None, **args), worker


def assert_same(left: Any, right: Any) -> None:
    """The same variables, and the same losses in a list that a hook has: it is restored too."""
    assert left[1] == right[1]
    assert left[0].keys() == right[0].keys()
    for name, value in left[0].items():
        np.testing.assert_array_equal(value, right[0][name], name)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    v1.logging.set_verbosity(v1.logging.ERROR)
    yield
    tf.keras.backend.clear_session()


CASES: dict[str, dict[str, Any]] = {
    "dropout": {},
    "old variables": {"model": old_variables},
    "local variables": {"model": local},
    "embedding": {"model": sparse},
    "generator": {"model": generator},
    "random data": {"input_fn": noisy},
    "tensors": {"input_fn": tensors},
    "data that ends": {"input_fn": ending, "max_steps": 1000},
    "drawn by a hook": {"job_type": Seldom},
    "canned": {"model": None},
    "queue": {"input_fn": queue()},
}


@cache
def undisturbed(case: str) -> Any:
    with incarnation(FakeArena(), 0) as worker:
        return train(worker, None, **CASES[case])


@pytest.mark.shows
@pytest.mark.parametrize("case", CASES)
def test_a_killed_training_ends_as_an_undisturbed_one(case: str) -> None:
    again, worker = resumed(8, **CASES[case])
    assert worker.jumps == [0]
    assert_same(again, undisturbed(case))


@pytest.mark.parametrize(("kill_after", "jumps"), [(3, []), (4, [0]), (13, [0]), (24, [0, 1])])
def test_it_may_die_at_any_step(kill_after: int, jumps: list[int]) -> None:
    """In the first training and in the second; the first is passed then without a step."""
    again, worker = resumed(kill_after)
    assert worker.jumps == jumps
    assert_same(again, undisturbed("dropout"))


def averaged(x: Any, labels: Any, **kind: Any) -> Any:
    """Trains on averages of its weights, and on counts that no collection has."""
    output = v1.layers.dense(x, 1)
    weights = v1.trainable_variables()
    average = tf.train.ExponentialMovingAverage(0.5, zero_debias=True)
    with tf.control_dependencies([average.apply(weights)]):
        shadows = [tf.reduce_sum(average.average(weight)) for weight in weights]
    with tf.control_dependencies([v1.assign_add(unlisted(**kind), [1.0])]):
        return output + tf.add_n(shadows) + tf.sin(unlisted_value())


def unlisted(**kind: Any) -> Any:
    """Makes a variable in another collection, which nothing initializes but its own reader."""
    with v1.variable_scope("outside", **kind):
        return v1.get_variable(
            "runs", [1], initializer=v1.zeros_initializer(), trainable=False, collections=[OUTSIDE]
        )


def unlisted_value() -> Any:
    return v1.get_collection(OUTSIDE)[-1].read_value()


class Initializing(Job):
    """Initializes such variables, and in some steps changes one in a run of its own."""

    def begin(self) -> None:
        super().begin()
        self._outside = v1.get_collection(OUTSIDE)
        self._change = [v1.assign_add(variable, [0.5]) for variable in self._outside]

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run([variable.initializer for variable in self._outside])

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self.runs % 3 == 1:
            run_context.session.run(self._change)
        super().after_run(run_context, run_values)


@pytest.mark.shows
@pytest.mark.parametrize("resource", [True, False])
@pytest.mark.parametrize("kills", [(8, 11), (13, 17)])
def test_averages_and_variables_in_no_collection(resource: bool, kills: tuple[int, ...]) -> None:
    """Of a training that is killed twice; `resource`: of which kind the variables are."""
    args = {
        "model": partial(averaged, use_resource=resource),
        "job_type": Initializing,
    }
    with incarnation(FakeArena(), 0) as worker:
        expected = train(worker, None, **args)
    arena = FakeArena()
    for number, after in enumerate(kills):
        with incarnation(arena, number) as worker, pytest.raises(Killed):
            train(worker, after, **args)
    with incarnation(arena, len(kills)) as worker:
        assert_same(train(worker, None, **args), expected)
    assert worker.jumps


def outside(session: Any) -> OutsideVariables:
    return OutsideVariables(session, v1.global_variables(), tells=True)


def test_of_variables_in_no_collection_the_changed_ones_are_kept() -> None:
    """And those that have content at all; of what a restarted script lacks there is a line."""
    with tf.Graph().as_default():
        counter, teacher, late = (v1.Variable([1.0], collections=[]) for _ in range(3))
        listed = tf.Variable([1.0])
        with v1.Session() as session:
            session.run([each.initializer for each in (counter, teacher, listed)])
            found = outside(session)
            session.run([v1.assign_add(counter, [1.0]), v1.assign_add(listed, [1.0])])
            kept = found.changed(session)
            assert {name: list(content) for name, content in kept.items()} == {
                counter.op.name: [2.0]
            }
            session.run([v1.assign(counter, [1.0]), late.initializer])
            kept = found.changed(session)
            assert kept.keys() == {counter.op.name, late.op.name}, "it has changed, and back"
            again = outside(session)
            again.restore(session, {counter.op.name: np.array([1.0], np.float32)})
            assert again.changed(session).keys() == {counter.op.name}, "for the next restart"


def test_a_variable_that_cannot_be_kept_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        for name in ("written", "read"):
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name=name, name=name)
            tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
            if name == "written":
                tf.raw_ops.AssignAddVariableOp(resource=handle, value=1.0)
        text = v1.Variable("", collections=[], name="text")
        session.run(text.initializer)
        found = outside(session)
        session.run(v1.assign(text, "a"))
        assert found.changed(session) == {}
        found.restore(session, {"other": np.array(1.0)})
    told = capsys.readouterr().err
    assert "the variable written changes in training" in told
    assert "the variable read" not in told
    assert "the variable text changes in training and contains texts" in told
    assert "the snapshot has the variable other, which" in told


class Eager(Job):
    """Draws from TensorFlow's global generator, outside of the session's graph."""

    def after_run(self, run_context: Any, run_values: Any) -> None:
        with tf.init_scope(), context.eager_mode():
            self.sums.append(float(tf.random.get_global_generator().uniform([])))
        super().after_run(run_context, run_values)


class Inside(Job):
    """Makes that generator in the graph, and draws from it in each run."""

    def begin(self) -> None:
        tf.random.set_global_generator(tf.random.Generator.from_seed(7))
        self._loss = tf.random.get_global_generator().uniform([])


@pytest.mark.parametrize("job_type", [Eager, Inside])
def test_the_global_generator_goes_on(monkeypatch: pytest.MonkeyPatch, job_type: type[Job]) -> None:
    def begin() -> None:
        generator = tf.random.Generator.from_seed(7)
        monkeypatch.setattr(stateful_random_ops, "global_generator", generator)

    arena = FakeArena()
    begin()
    with incarnation(arena, 0) as worker, pytest.raises(Killed):
        train(worker, 8, job_type=job_type)
    begin()
    with incarnation(arena, 1) as worker:
        again = train(worker, None, job_type=job_type)
    begin()
    with incarnation(FakeArena(), 0) as worker:
        assert_same(again, train(worker, None, job_type=job_type))


def test_what_was_read_never_changes() -> None:
    for model in (dense, old_variables, sparse):
        with tf.Graph().as_default() as graph:
            features, labels = tensors()
            loss = tf.reduce_mean(tf.square(model(features["x"], labels) - labels))
            step = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                session.run(step)
                arrays = SessionVariables(graph).read(session)
                copies = {name: array.copy() for name, array in arrays.items()}
                session.run(step)
                for name, array in arrays.items():
                    np.testing.assert_array_equal(array, copies[name], name)


def test_random_numbers_behind_a_collective_are_left_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    mpi_ops = pytest.importorskip("horovod.tensorflow.mpi_ops")
    with tf.Graph().as_default() as graph:
        whole = mpi_ops.MPI_LIB.horovod_allreduce(
            tf.ones([3]), reduce_op=1, prescale_factor=1.0, postscale_factor=1.0
        )
        size = tf.cast(whole[:1], tf.int32)
        behind, beside = tf.random.uniform(size, name="behind"), tf.random.uniform([2])
        draws = Draws(graph)
        draws.add([behind, beside])
    assert list(draws.counts) == ["random_uniform/RandomUniform"]
    assert "behind/RandomUniform depend on a collective" in capsys.readouterr().err


def test_a_step_that_draws_otherwise_is_said() -> None:
    with tf.Graph().as_default() as graph, v1.Session() as session:
        tf.random.uniform([2])
        with pytest.raises(HvdFtError, match="no operation other, with which it drew"):
            Draws(graph).drop(session, {"random_uniform/RandomUniform": 2, "other": 3})


@pytest.mark.shows
def test_a_model_that_differs_is_said() -> None:
    arena = FakeArena()
    with incarnation(arena, 0) as worker, pytest.raises(Killed):
        train(worker, 5)
    with incarnation(arena, 1) as worker, pytest.raises(HvdFtError, match="it must make the same"):
        train(worker, None, sparse)


def test_data_that_is_too_short_is_said() -> None:
    arena = FakeArena()
    with incarnation(arena, 0) as worker, pytest.raises(Killed):
        train(worker, 8)
    with incarnation(arena, 1) as worker, pytest.raises(HvdFtError, match="does not end where"):
        train(worker, None, input_fn=lambda: dataset().take(2))


def test_without_an_agent_it_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = ours.FaultTolerance()
    hook.begin()
    assert hook.before_run(None) is None
    hook.after_run(None, None)
    hook.end(None)


def test_it_has_to_be_a_hook_of_the_session_itself() -> None:
    with incarnation(FakeArena(), 0), pytest.raises(HvdFtError, match="not inside another hook"):
        ours.FaultTolerance().begin()


def test_an_argument_out_of_range() -> None:
    with pytest.raises(HvdFtError):
        ours.FaultTolerance(snapshot_steps=0)


class Agreed:
    """Stands for Horovod: rank 0 has found `step` steps in its model directory."""

    def __init__(self, rank: int, step: int) -> None:
        self.rank = lambda: rank
        self.is_initialized = lambda: True
        self.broadcast = lambda tensor, root, name: tf.constant([step], tf.int64)


@pytest.mark.shows
@pytest.mark.parametrize(("found", "done"), [(0, 12), (4, 12), (12, 0), (20, 0)])
def test_all_ranks_train_as_long_as_rank_0_finds_right(
    found: int, done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "hvd", Agreed(1, found))
    trained = make(dense)
    job = Job(SimpleNamespace(collective=lambda signature: None), None)
    trained.train(dataset, [job, ours.FaultTolerance()], max_steps=STEPS)
    assert job.runs == done


def test_other_ranks_leave_the_model_directory_alone(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank, files in ((1, False), (0, True)):
        monkeypatch.setattr(training, "hvd", Agreed(rank, 0))
        trained = make(dense)
        trained._config = trained._config.replace(model_dir=str(tmp_path))
        trained._model_dir = str(tmp_path)
        trained.train(dataset, [ours.FaultTolerance()], steps=2)
        assert trained.get_variable_value("global_step") == 2
        assert bool(list(tmp_path.iterdir())) == files
