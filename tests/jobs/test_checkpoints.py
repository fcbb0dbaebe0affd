"""Jobs that continue from a checkpoint end as an undisturbed one, bit for bit, on every rank."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SCRIPTS, Ended, Once, RunHvdft

from hvd_ft.checkpoint.catalogue import Checkpoint, find

SCRIPT = [sys.executable, "-W", "ignore", str(SCRIPTS / "checkpoint_script.py")]
RANKS = 2
pytestmark = pytest.mark.timeout(150)
OFTEN = ["--checkpoint-interval", "0.1"]


def results(ended: Ended, code: int = 0) -> dict[int, str]:
    assert ended.code == code, ended.err
    return {int(r): found for r, found in re.findall(r"^RESULT (\d+) (\w+)$", ended.out, re.M)}


@pytest.fixture
def undisturbed(run_hvdft: RunHvdft, once: Once) -> dict[int, str]:
    def make(folder: Path) -> None:
        ended = run_hvdft(["run", "-np", str(RANKS), *SCRIPT])
        (folder / "out").write_text(ended.out)
        assert ended.code == 0, ended.err

    out = (once("checkpoints", make) / "out").read_text()
    found = results(Ended(0, out, ""))
    assert len(set(found.values())) == RANKS, "each rank has a state of its own"
    return found


def broken_off(
    run_hvdft: RunHvdft, folder: Path, plan: str, *flags: str, env: dict[str, str] | None = None
) -> tuple[Ended, list[Checkpoint]]:
    """Runs a job that does not end well; returns what it has left in the folder."""
    ended = run_hvdft(
        ["run", "-np", str(RANKS), "--checkpoint-dir", str(folder), *flags, *SCRIPT],
        env={"PLAN": plan, "CHECKPOINTS": str(folder), **(env or {})},
    )
    assert ended.code != 0, ended
    return ended, find(folder)


def resume(run_hvdft: RunHvdft, folder: Path, *flags: str, ranks: int = RANKS) -> Ended:
    return run_hvdft(["run", "-np", str(ranks), "--resume", str(folder), *flags, *SCRIPT])


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("plan", ["end:0:6", "end:1:9", "end:2:11"])
def test_a_job_that_ended_goes_on_exactly(
    run_hvdft: RunHvdft, tmp_path: Path, undisturbed: dict[int, str], plan: str
) -> None:
    """With an interval so short that a checkpoint follows the other."""
    ended, found = broken_off(run_hvdft, tmp_path / "c", plan, *OFTEN)
    assert ended.code == 7, ended.err
    assert "no checkpoint was written" not in ended.err
    assert {each.state for each in found} == {"complete"}, found
    assert found[-1].manifest is not None
    assert found[-1].manifest.loop == int(plan[4])
    for path in [tmp_path / "c", *(tmp_path / "c").rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    assert results(resume(run_hvdft, tmp_path / "c")) == undisturbed


@pytest.mark.shows(later=True)
def test_a_directory_that_is_lost_is_said_each_time_at_the_end_and_by_the_code(
    run_hvdft: RunHvdft, tmp_path: Path, undisturbed: dict[int, str]
) -> None:
    folder = tmp_path / "c"
    ended = run_hvdft(
        ["run", "-np", str(RANKS), "--checkpoint-dir", str(folder), *OFTEN, *SCRIPT],
        env={"PLAN": "lose:", "CHECKPOINTS": str(folder)},
    )
    assert ended.code == 74, ended.err
    assert results(Ended(0, ended.out, ended.err)) == undisturbed
    assert ended.err.count(f"no checkpoint was written to {folder}: Not a directory") >= 2
    last = [line for line in ended.err.splitlines() if "(incarnation " not in line][-1]
    assert re.fullmatch(
        rf"hvdft: the training has ended well, but the latest \d+ checkpoints were not written to "
        rf"{folder}: Not a directory \(.*\)",
        last,
    ), ended.err


def test_a_directory_that_cannot_be_written_is_refused(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    """By the agents, as it may be another host's, or under horovodrun."""
    (tmp_path / "c").touch()
    for command in (["agent"], ["run", "-np", "2"]):
        ended = run_hvdft(
            [*command, "--", *SCRIPT], env={"HOROVOD_FT_CHECKPOINT_DIR": str(tmp_path / "c")}
        )
        assert ended.code == 2, ended
        said = f"hvdft: nothing can be written to {tmp_path}/c on "
        assert said in ended.err and "is not a directory" in ended.err
        assert "RESULT" not in ended.out


def test_a_resumed_job_has_checkpoints_of_its_own_and_survives_kills(
    run_hvdft: RunHvdft, tmp_path: Path, undisturbed: dict[int, str]
) -> None:
    broken_off(run_hvdft, tmp_path / "c", "end:0:6", *OFTEN)
    before = {each.name for each in find(tmp_path / "c")}
    # A rank dies before its first snapshot in the new job, in the loop that goes on, and later.
    drills = ["rank=1,point=restore", "rank=0,step=12", "rank=1,incarnation=1,op=60"]
    inject = [word for drill in drills for word in ("--inject", drill)]
    flags = ["--checkpoint-dir", str(tmp_path / "c"), "--checkpoint-keep", "2", *OFTEN]
    ended = run_hvdft(
        ["run", "-np", str(RANKS), "--resume", str(tmp_path / "c"), *flags, *inject, *SCRIPT],
        env={"PLAN": "end:1:9", "CHECKPOINTS": str(tmp_path / "c")},
    )
    assert ended.code == 7, ended.err
    found = find(tmp_path / "c")
    assert {each.manifest.run for each in found if each.manifest} == {
        name.partition("-")[0] for name in before
    }
    own = [each.name for each in found if each.name not in before]
    assert len(own) == 2, found
    [base] = before & {each.name for each in found}
    assert base == max(before), "it is kept, as a restarted rank may need it"
    assert results(resume(run_hvdft, tmp_path / "c")) == undisturbed


@pytest.mark.shows(later=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_preemption(
    run_hvdft: RunHvdft, tmp_path: Path, undisturbed: dict[int, str], number: int
) -> None:
    hvdft = ["-m", "hvd_ft.cli", "run", "-np", str(RANKS), "--checkpoint-dir", str(tmp_path / "c")]
    flags = ["--grace", "60", "--checkpoint-interval", "1h"]
    shell = ["sh", "-c", 'LAUNCHER=$$ exec "$0" "$@"', sys.executable]
    ended = run_hvdft(
        [*hvdft, *flags, *SCRIPT],
        program=shell,
        env={"PLAN": "signal:1:9", "SIGNAL": str(int(number))},
    )
    assert ended.code == 143, ended.err
    assert "preempted: the checkpoint is written" in ended.err
    assert f"hvdft run --resume {tmp_path / 'c'} continues from step " in ended.err
    [found] = find(tmp_path / "c")
    assert found.manifest is not None
    assert (found.state, found.manifest.loop) == ("complete", 1)
    assert 9 < found.manifest.step <= 13
    assert results(resume(run_hvdft, tmp_path / "c")) == undisturbed


def test_a_grace_that_is_too_short(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    """Here there is no loop, so no snapshot comes."""
    code = "import os, signal, time; os.kill(int(os.environ['LAUNCHER']), 15); time.sleep(600)"
    begin = "import hvd_ft.tensorflow as hvd; hvd.init(); "
    shell = ["sh", "-c", 'LAUNCHER=$$ exec "$0" "$@"', sys.executable]
    flags = ["--checkpoint-dir", str(tmp_path / "c"), "--grace", "1"]
    ended = run_hvdft(
        ["-m", "hvd_ft.cli", "run", "-np", "1", *flags, sys.executable, "-c", begin + code],
        program=shell,
    )
    assert ended.code == 143, ended.err
    assert "as the grace is over" in ended.err
    last = ended.err.splitlines()[-1]
    assert f"there is no complete checkpoint in {tmp_path / 'c'}, so the job begins anew" in last
    assert find(tmp_path / "c") == []


def test_a_crash_loop_leaves_its_latest_state(
    run_hvdft: RunHvdft, tmp_path: Path, undisturbed: dict[int, str]
) -> None:
    drills = ["rank=1,step=10", "rank=1,step=10,incarnation=1"]
    inject = [word for drill in drills for word in ("--inject", drill)]
    ended, found = broken_off(
        run_hvdft,
        tmp_path / "c",
        "",
        *inject,
        env={"HOROVOD_FT_MAX_FAILURES": "1"},
    )
    assert "rank 1 failed 2 times" in ended.err
    assert "the job's latest state is in" in ended.err
    [drained] = found
    assert drained.manifest is not None
    assert (drained.state, drained.manifest.step) == ("complete", 8)
    assert results(resume(run_hvdft, tmp_path / "c")) == undisturbed


def test_agents_that_die_too_often_leave_the_latest_state(
    run_hvdft: RunHvdft, tmp_path: Path, undisturbed: dict[int, str]
) -> None:
    drills = ["--inject", "agent=0,step=9"]
    ended, found = broken_off(
        run_hvdft,
        tmp_path / "c",
        "",
        *drills,
        env={"HOROVOD_FT_MAX_FAILURES": "0"},
    )
    assert "agents or mpirun failed 1 times" in ended.err
    assert [(each.state, each.manifest and each.manifest.step) for each in found] == [
        ("complete", 8)
    ]
    assert results(resume(run_hvdft, tmp_path / "c")) == undisturbed


WRITER_KILLER = """\
import contextlib, pathlib, sys, time, psutil
folder, left = pathlib.Path(sys.argv[1]), 2
while left:
    if list(folder.glob(".*.partial")):
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                ours = process.environ().get("MINE") == sys.argv[2]
                if ours and left and "hvd_ft.checkpointer" in process.cmdline():
                    process.kill()
                    left -= 1
                    print("killed", flush=True)
    time.sleep(0.001)
"""


def test_a_writer_that_is_killed_while_it_writes(
    run_hvdft: RunHvdft, tmp_path: Path, undisturbed: dict[int, str]
) -> None:
    """Another one takes its place, and nothing that looks complete is torn."""
    folder = tmp_path / "c"
    command = [sys.executable, "-c", WRITER_KILLER, str(folder), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killer:
        try:
            ended, found = broken_off(
                run_hvdft, folder, "end:2:11", *OFTEN, env={"MINE": str(tmp_path), "UNITS": "400"}
            )
        finally:
            killer.kill()
            assert killer.stdout is not None
            kills = killer.stdout.read().count("killed")
    assert kills == 2
    assert ended.code == 7, ended.err
    assert ended.err.count("another one takes its place") == 2
    assert {each.state for each in found} == {"complete"}
    verified = run_hvdft(["checkpoint", "verify", str(folder)])
    assert verified.code == 0, verified
    assert len(verified.out.splitlines()) == len(found)


def test_a_full_disk_does_not_stop_the_training(
    run_hvdft: RunHvdft, tmp_path: Path, undisturbed: dict[int, str]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=True)
    try:
        flags = ["--checkpoint-dir", str(disk / "c"), *OFTEN]
        ended = run_hvdft(["run", "-np", str(RANKS), *flags, *SCRIPT])
    finally:
        subprocess.run(["umount", disk], check=True)
    # Code 74: see docs/failures.md.
    assert results(ended, code=74) == undisturbed
    assert f"no checkpoint was written to {disk}/c: No space left on device; " in ended.err
    assert "the training has ended well, but the latest" in ended.err


@pytest.mark.shows(later=True)
def test_a_checkpoint_that_cannot_be_used_is_refused_by_name(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    _, found = broken_off(run_hvdft, folder, "end:1:9", *OFTEN)
    assert len(found) > 1
    older, newest = found[-2].path, found[-1].path
    weights = max(newest.glob("*.safetensors"), key=lambda path: path.stat().st_size)
    data = bytearray(weights.read_bytes())
    data[-5] ^= 4
    weights.write_bytes(data)
    ended = resume(run_hvdft, folder)
    assert ended.code == 2, ended.err
    assert f"the checkpoint {newest} cannot be used: {weights.name} is damaged" in ended.err
    weights.write_bytes(data[:-5])
    assert f"{weights.name} has {len(data) - 5} bytes instead of" in resume(run_hvdft, folder).err
    verified = run_hvdft(["checkpoint", "verify", str(folder)])
    assert verified.code == 2
    assert weights.name in verified.err
    manifest = newest / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 2'))
    ended = resume(run_hvdft, folder)
    assert "in version 2 of the format, and this hvd_ft reads versions up to 1" in ended.err
    assert f"--resume {folder}/{older.name} continues from an older one" in ended.err
    shutil.rmtree(newest)
    assert f"continuing from {older}" in resume(run_hvdft, older).err


def test_another_number_of_ranks(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    broken_off(run_hvdft, tmp_path / "c", "end:1:9", *OFTEN)
    for ranks, text in (
        (1, "what rank 1 had of its own (data, generators, batch statistics) has no owner"),
        (3, "rank 2 begins with the state of another rank"),
    ):
        ended = resume(run_hvdft, tmp_path / "c", ranks=ranks)
        assert len(results(ended)) == ranks
        assert text in ended.err
        # Every rank's State has been told, behind its snapshot.
        resets = re.findall(r"RESET (\d+)", ended.out)
        assert len(resets) == ranks and "0" not in resets, ended.out
