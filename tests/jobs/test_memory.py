"""What a job says about its memory: before it trains, and in its report."""

import sys
from pathlib import Path

import pytest
from conftest import RunHvdft

from hvd_ft.cli import main
from hvd_ft.reports.report import read_report

MIB = 1 << 20

# 12 MB of weights, and as much in the optimizer's slots; 1 MB that is each rank's own.
SCRIPT = """\
import sys
import tensorflow as tf
import hvd_ft.tensorflow as hvd

hvd.init()
tf.keras.utils.set_random_seed(5)
weights = tf.Variable(tf.random.normal([1000, 3000]))
own = tf.Variable(tf.zeros([256, 1000]), trainable=False)
optimizer = tf.keras.optimizers.legacy.SGD(0.01, momentum=0.9)
state = hvd.State(None, optimizer, variables=[weights, own], snapshot_steps=3)
hvd.allreduce(tf.ones([1000, 9000]), name="before the loop")
state.sync()
while state.batch < 12:
    if state.batch == 1 and hvd.rank() == 0:
        print("step 2 begins", file=sys.stderr, flush=True)
    gradient = hvd.allreduce(weights * (1.0 + hvd.rank()), name="gradient")
    optimizer.apply_gradients([(gradient, weights)])
    own.assign_add(tf.fill(own.shape, float(hvd.rank())))
    state.batch += 1
    state.commit()
state.finish()
"""

FIT = """\
import sys
import tensorflow as tf
import hvd_ft.tensorflow.keras as hvd

hvd.init()
tf.keras.utils.set_random_seed(3)
layers = [tf.keras.layers.Dense(1500, input_shape=[1000]), tf.keras.layers.Dense(1)]
model = tf.keras.Sequential(layers)
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.Adam()), "mse")
data = tf.data.Dataset.from_tensor_slices((tf.ones([16, 1000]), tf.ones([16, 1]))).batch(4)
steps = tf.keras.callbacks.LambdaCallback(
    on_train_batch_end=lambda batch, _: print(f"step {batch + 1} is done", file=sys.stderr)
)
model.fit(data, verbose=0, callbacks=[hvd.callbacks.FaultTolerance(), steps])
"""


@pytest.mark.shows
@pytest.mark.parametrize(
    ("script", "mib", "later"),
    [(SCRIPT, 104, "step 2 begins"), (FIT, 80, "step 2 is done")],
    ids=["a loop of one's own", "fit"],
)
def test_too_little_memory_is_announced_before_the_second_step(
    run_hvdft: RunHvdft, tmp_path: Path, script: str, mib: int, later: str
) -> None:
    file = tmp_path / "train.py"
    file.write_text(script)
    ended = run_hvdft(
        ["run", "-np", "2", sys.executable, str(file)],
        env={"HOROVOD_FT_ARENA_BYTES": f"{mib}M"},
    )
    said = [line for line in ended.err.splitlines() if "this training will need about" in line]
    assert len(said) == 1, ended.err
    assert f"the arena may take only {mib} MiB: raise HOROVOD_FT_ARENA_BYTES to " in said[0]
    assert ended.err.index(said[0]) < ended.err.index(later)


def test_enough_memory_for_a_small_job_is_not_announced(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    report = tmp_path / "run.jsonl"
    command = ["run", "-np", "2", "--report", str(report), "--inject", "rank=1,step=8"]
    ended = run_hvdft([*command, sys.executable, str(file)], env={"HOROVOD_FT_ARENA_BYTES": "400M"})
    assert ended.code == 0, ended.err
    assert "will need" not in ended.err
    facts = read_report(report).facts
    [node] = facts["nodes"]
    most, now, gradient = node["most"], node["memory"], 12_000_000
    assert now["limit"] == most["limit"] == 400 * MIB
    # Two snapshots, of which the two ranks share the weights, and what is each one's own.
    assert 2 * 2 * gradient <= most["shared_state"] < 2 * 2 * gradient + 4 * 4096 * 2
    assert 2 * 2 * 1_024_000 <= most["private_state"] < 2 * 2 * 1_100_000 + most["shared_state"]
    assert now["slots"] < most["slots"]  # a loop's end frees one
    assert most["heap"] >= most["log"] >= 3 * gradient
    assert now["kept"] >= 36_000_000  # of before the loop
    sums = ("slots", "heap", "messages", "input_areas", "control")
    assert now["total"] == sum(now[name] for name in sums)
    assert max(now["total"], most["slots"] + now["kept"]) < most["total"] <= most["limit"]
    # What came before the loop belongs to no step.
    assert [rank["step_bytes"] for rank in facts["ranks"]] == [gradient, gradient]


def test_the_report_has_the_memory_of_every_node(
    run_hvdft: RunHvdft, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "train.py"
    file.write_text(SCRIPT)
    report = tmp_path / "run.jsonl"
    command = ["run", "-np", "2", "--topology", "flat", "--report", str(report)]
    ended = run_hvdft(
        [*command, sys.executable, str(file)],
        env={"HOROVOD_FT_ARENA_BYTES": "800M", "HOROVOD_FUSION_THRESHOLD": str(32 * MIB)},
    )
    assert ended.code == 0, ended.err
    facts = read_report(report).facts
    assert [node["first_rank"] for node in facts["nodes"]] == [0, 1]
    for node in facts["nodes"]:
        assert node["most"]["limit"] == 400 * MIB
        # Two snapshots: of what both ranks share, and of each rank's own, which is kept on both.
        assert 2 * 24_000_000 <= node["most"]["shared_state"] < 2 * 24_000_000 + 4 * 4096 * 2
        assert 2 * 2 * 1_024_000 <= node["most"]["private_state"] < 2 * 2 * 1_100_000
    assert [rank["step_bytes"] for rank in facts["ranks"]] == [12_000_000] * 2
    assert main(["report", str(report)]) == 0
    out = capsys.readouterr().out
    assert "Memory of each node" in out
    assert out.count("43.4") == 2  # a fusion buffer and a step's results
