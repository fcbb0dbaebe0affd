"""How much memory a training needs, and what is said about it."""

from dataclasses import fields, replace

import pytest
from fake_worker import FakeArena, FakeWorker

from hvd_ft.native.types import Memory
from hvd_ft.system.byte_size import in_words
from hvd_ft.system.memory_left import CGROUP, FILESYSTEM, HOST, Left
from hvd_ft.worker import memory_check
from hvd_ft.worker.memory_need import (
    ARENA,
    Need,
    Shortage,
    Training,
    announcement,
    memory_need,
    shortage,
)

MIB = 1 << 20
NOTHING = Memory(**dict.fromkeys([field.name for field in fields(Memory)], 0))
TRAINING = Training(
    state_bytes=300 * MIB, step_bytes=100 * MIB, ranks=4, nodes=1, snapshot_steps=7, begun=True
)


def node(*, limit: int, **parts: int) -> Memory:
    """The memory of a node, in MiB."""
    sizes = {name: size * MIB for name, size in {"limit": limit, **parts}.items()}
    whole = ("slots", "heap", "messages", "input_areas", "control")
    return replace(NOTHING, **sizes, total=sum(sizes.get(name, 0) for name in whole))


BEGUN = node(limit=4096, heap=150, log=100, kept=50, input_areas=4, control=11)


def test_what_a_training_needs() -> None:
    need = memory_need(TRAINING, BEGUN)
    assert need == Need(600 * MIB, 2400 * MIB, 800 * MIB, 65 * MIB)
    assert need.total == need.state + need.log + need.rest


def test_between_nodes_the_log_has_each_result_twice() -> None:
    one, two = memory_need(TRAINING, BEGUN), memory_need(replace(TRAINING, nodes=2), BEGUN)
    assert two.log == 2 * one.log


def test_a_small_snapshot_is_every_ranks_own() -> None:
    need = memory_need(replace(TRAINING, state_bytes=MIB), BEGUN)
    assert need.state == need.most_state == 8 * MIB


def test_what_the_log_has_of_before_the_loop_will_be_kept() -> None:
    rest = memory_need(TRAINING, BEGUN).rest
    before = replace(TRAINING, begun=False)
    assert memory_need(before, BEGUN).rest == rest + BEGUN.log
    both = replace(BEGUN, log=130 * MIB)  # a step's results, and earlier ones
    assert memory_need(TRAINING, both).rest == rest + 30 * MIB
    assert memory_need(replace(TRAINING, nodes=2), both).rest == rest


def test_what_other_loops_have_stays() -> None:
    used = replace(BEGUN, slots=7 * MIB, messages=MIB)
    assert memory_need(TRAINING, used).rest == memory_need(TRAINING, BEGUN).rest + 8 * MIB


def test_the_users_interval_decides_the_log() -> None:
    assert memory_need(replace(TRAINING, snapshot_steps=20), BEGUN).log == 2100 * MIB


NEED = Need(600 * MIB, 2400 * MIB, 800 * MIB, 65 * MIB)


def test_what_fits_is_no_shortage() -> None:
    exact = node(limit=1465, heap=150, input_areas=4, control=11)
    assert shortage(NEED, exact, [Left(HOST, 1300 * MIB)]) is None
    assert shortage(NEED, replace(exact, limit=exact.limit - 1), []) == Shortage(
        ARENA, 1, exact.limit - 1
    )
    # What the arena has already is not taken from the machine again.
    assert shortage(NEED, exact, [Left(HOST, 1300 * MIB - 1)]) == Shortage(HOST, 1, 1300 * MIB - 1)


def test_the_worst_shortage_counts() -> None:
    left = [Left(FILESYSTEM, 900 * MIB), Left(HOST, 800 * MIB), Left(CGROUP, 850 * MIB)]
    worst = shortage(NEED, node(limit=1400, heap=165), left)
    assert worst == Shortage(HOST, 500 * MIB, 800 * MIB)


def test_several_arenas_of_a_host_take_from_the_same_machine() -> None:
    used = node(limit=4096, heap=165)
    assert shortage(NEED, used, [Left(HOST, 2000 * MIB)]) is None
    assert shortage(NEED, used, [Left(HOST, 2000 * MIB)], 2) == Shortage(
        HOST, 600 * MIB, 2000 * MIB
    )


def say_of(lacks: Shortage | None) -> str:
    return announcement(TRAINING, NEED, lacks, "/dev/shm/here")


def test_the_need_is_announced() -> None:
    assert say_of(None) == (
        "this training will need about 1465 MiB of memory on this host for fault tolerance: "
        "600 MiB for 2 snapshots of 300 MiB (if its 4 ranks share all variables; 2400 MiB if "
        "none), 800 MiB for the results of 8 steps, 65 MiB for the rest"
    )
    alone = announcement(TRAINING, NEED._replace(most_state=NEED.state), None, "")
    assert "share" not in alone


@pytest.mark.parametrize(
    ("lacks", "words"),
    [
        (
            Shortage(ARENA, 465 * MIB, 1000 * MIB),
            "the arena may take only 1000 MiB: raise HOROVOD_FT_ARENA_BYTES to 1465M or more or "
            "take snapshots more often (snapshot_steps, HOROVOD_FT_LOG_STEPS)",
        ),
        (
            Shortage(FILESYSTEM, 900 * MIB, 64 * MIB),  # more than the log has
            "/dev/shm/here has only 64 MiB free, 900 MiB less than that takes: enlarge it "
            "(docker: --shm-size) or set HOROVOD_FT_ARENA_DIR to a directory with more",
        ),
        (
            Shortage(HOST, 500 * MIB, 800 * MIB),
            "this host has only 800 MiB left, 500 MiB less than that takes: start fewer ranks on "
            "this host, set HOROVOD_FT_ARENA_DIR to a directory on a disk or take snapshots more "
            "often (snapshot_steps, HOROVOD_FT_LOG_STEPS)",
        ),
        (Shortage(CGROUP, MIB, MIB), "the control group of this job (container, Slurm) has only"),
    ],
    ids=lambda value: value.of if isinstance(value, Shortage) else "",
)
def test_a_shortage_comes_with_its_remedy(lacks: Shortage, words: str) -> None:
    text = say_of(lacks)
    assert text.startswith(say_of(None) + "; but ")
    assert words in text
    assert "\n" not in text


def test_sizes_in_words() -> None:
    sizes = [0, 1, MIB, 10 * 1024 * MIB - 1, 10 * 1024 * MIB, 25 << 29]
    assert [in_words(size) for size in sizes] == [
        *("0 MiB", "1 MiB", "1 MiB", "10240 MiB", "10.0 GiB", "12.5 GiB")
    ]


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> FakeWorker:
    """A node's first rank, whose machine has 100 GiB left."""
    monkeypatch.setattr(memory_check, "_announced", 0)
    monkeypatch.setattr(memory_check, "_lacked", False)
    monkeypatch.setattr(memory_check, "memory_left", lambda _: [Left(HOST, 100 << 30)])
    monkeypatch.setenv("HOROVOD_LOCAL_RANK", "0")
    monkeypatch.setenv("HOROVOD_LOCAL_SIZE", "1")
    made = FakeWorker(FakeArena(), 0)
    made.memory_facts = replace(BEGUN, log=0)
    return made


def check(worker: FakeWorker, state: int, gradients: int, steps: int = 7) -> None:
    memory_check.check_memory(worker, state * MIB, gradients * MIB, steps)  # type: ignore[arg-type]


def test_a_small_need_is_not_announced(
    worker: FakeWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    check(worker, 20, 10)  # 40 + 80 + 65 MiB
    assert capsys.readouterr().err == ""
    worker.memory_facts = replace(worker.memory_facts, limit=150 * MIB)
    check(worker, 20, 10)
    assert "raise HOROVOD_FT_ARENA_BYTES to 185M or more" in capsys.readouterr().err


def test_a_need_is_announced_once_and_again_if_it_grows(
    worker: FakeWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    for state in (300, 300, 200, *range(301, 310), 500):
        check(worker, state, 100)
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2].partition(" of")[0] for line in said] == [
        "this training will need about 1465 MiB",
        "this training will need about 1865 MiB",
    ]


def test_memory_that_begins_to_lack_is_announced_whatever_was_said_before(
    worker: FakeWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once: the kept snapshots of many loops let the need grow a little in each."""
    check(worker, 300, 100)
    assert "; but " not in capsys.readouterr().err
    worker.memory_facts = replace(worker.memory_facts, limit=1466 * MIB)
    for state in (301, 302, 303):
        check(worker, state, 100)
    (line,) = capsys.readouterr().err.splitlines()
    assert "; but " in line


def test_what_a_step_has_reduced_counts_more_than_what_is_trained(
    worker: FakeWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    worker.step_bytes = 50 * MIB  # half precision, say
    check(worker, 300, 100)
    assert "400 MiB for the results of 8 steps" in capsys.readouterr().err


@pytest.mark.parametrize("other", ["restarted", "second rank", "second node of the host"])
def test_only_the_first_process_of_a_host_announces(
    worker: FakeWorker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    other: str,
) -> None:
    if other == "restarted":
        worker.incarnation = 1
    elif other == "second rank":
        worker.rank = 1
    else:
        monkeypatch.setenv("HOROVOD_LOCAL_RANK", "1")
    check(worker, 3000, 100)
    assert capsys.readouterr().err == ""


def test_nodes_that_share_a_host_need_its_memory_together(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory_check, "memory_left", lambda _: [Left(HOST, 2000 * MIB)])
    check(worker, 300, 100)
    assert "but" not in capsys.readouterr().err
    monkeypatch.setenv("HOROVOD_LOCAL_SIZE", "2")  # --topology flat
    check(worker, 301, 100)
    assert "this host has only 2000 MiB left" in capsys.readouterr().err
