"""`hvdft tune`: what it does with jobs, of which these are made up; and a real one."""

import json
import math
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from conftest import RunHvdft

from hvd_ft.errors import HvdFtError
from hvd_ft.launcher import tuning_file
from hvd_ft.members.hosts import Host
from hvd_ft.tools.tune import tune as tune_module
from hvd_ft.tools.tune import tune_output
from hvd_ft.tools.tune.flags import hosts_of
from hvd_ft.tools.tune.search import Knob
from hvd_ft.tools.tune.tune import CHECK_ROUNDS, Plan, tune
from hvd_ft.tools.tune.worker import in_a_row

GATHER = Knob("gather", "HOROVOD_FT_GATHER_BYTES", ("0", "16K", "64K"), "16K", ordered=True)
BINDING = Knob("binding", "HOROVOD_FT_BIND_TO", ("auto", "none"), "auto")
PLAN = Plan((), 4, [4096, 1 << 20], 600.0, [BINDING, GATHER])
HOSTS = Plan((Host("a", 3), Host("b", 3)), 4, [4096], 600.0, [BINDING])

Speed = Callable[[Mapping[str, str]], float]


class Jobs:
    """Made-up jobs: they note what is done with them."""

    def __init__(self, speed: Speed) -> None:
        self.speed = speed
        self.running: list[Mapping[str, str]] = []
        self.most = 0
        self.flags: Sequence[str] = ()
        self.measured: list[Mapping[str, str]] = []

    def side(self, *_: object) -> "Side":
        return Side(self)


class Side:
    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.variables: Mapping[str, str] = {}
        self.cpus = [2, 2, 2, 6]

    def start(self, flags: Sequence[str], variables: Mapping[str, str]) -> None:
        self.jobs.flags, self.variables = flags, variables
        if self.jobs.speed(variables) == 0:
            raise HvdFtError("a job failed: no such thing")
        self.jobs.running.append(variables)
        self.jobs.most = max(self.jobs.most, len(self.jobs.running))

    def measure(self, sizes: Sequence[int]) -> list[float]:
        assert self.variables in self.jobs.running
        self.jobs.measured.append(self.variables)
        seconds = 1e-3 / self.jobs.speed(self.variables)
        return [seconds * (1 + size / 1e6) for size in sizes]

    def end(self) -> None:
        if self.variables in self.jobs.running:
            self.jobs.running.remove(self.variables)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Callable[[Speed], Jobs]:
    def make(speed: Speed) -> Jobs:
        made = Jobs(speed)
        monkeypatch.setattr(tune_module, "Side", made.side)
        return made

    return make


def better(variables: Mapping[str, str]) -> float:
    """Bound is best; gathering less is a quarter faster."""
    faster = 1.25 if variables.get("HOROVOD_FT_GATHER_BYTES") == "0" else 1.0
    return faster / (2.0 if "HOROVOD_FT_BIND_TO" in variables else 1.0)


def test_what_is_faster_is_found_checked_and_described(jobs: Callable[[Speed], Jobs]) -> None:
    made = jobs(better)
    lines: list[str] = []
    result = tune(PLAN, lines.append)
    assert result.tuning.settings == {"HOROVOD_FT_GATHER_BYTES": "0"}
    assert result.tuning.change == pytest.approx(-0.2) and result.in_time
    assert list(result.tuning.seconds) == ["4096", str(1 << 20)]
    default, tuned = result.tuning.seconds["4096"]
    assert tuned == pytest.approx(default / 1.25)
    assert made.flags == ["-np", "4"] and made.running == [] and made.most == 2
    assert lines[0].startswith(
        "binding: auto -> none: 100% more time in 3 rounds, no gain beyond the noise; "
    )
    assert "2 more to compare at most, about " in lines[0]
    assert [line.partition(" rounds, ")[0] for line in lines[2:3]] == ["gather: 16K -> 0: 20% less "
        "time in 10"]  # fmt: skip
    # The one that goes first alternates: in pairs of rounds the same one is measured twice in turn.
    tried = [bool(variables) for variables in made.measured[-2 * CHECK_ROUNDS :]]
    assert tried == [True, False, False, True] * (CHECK_ROUNDS // 2)
    assert tune_output.picture(result.comparisons, result.tuning.seconds).axes
    assert tune_output.sizes_table(result).row_count == 2
    assert tune_output.comparisons_table(result.comparisons).row_count == len(result.comparisons)


def test_the_place_has_the_cpus_of_all_hosts(jobs: Callable[[Speed], Jobs]) -> None:
    made = jobs(lambda _: 1.0)
    place = tune(HOSTS, lambda _: None).tuning.place
    assert made.flags == ["-np", "4", "-H", "a:3,b:3"]
    assert (place.hosts, place.ranks, place.cpus) == (["a:3", "b:3"], 4, {"a": 2, "b": 6})


def test_without_a_gain_the_defaults_stay(jobs: Callable[[Speed], Jobs]) -> None:
    jobs(lambda _: 1.0)
    result = tune(PLAN, lambda _: None)
    assert (result.tuning.settings, result.taken_back, result.tuning.change) == ({}, {}, 0.0)


def test_what_the_last_check_does_not_confirm_is_taken_back(
    jobs: Callable[[Speed], Jobs], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = jobs(better)
    searched = tune_module._search

    def search(*arguments: object) -> bool:
        over = searched(*arguments)  # type: ignore[arg-type]
        made.speed = lambda variables: 1 / better(variables)  # another day
        return over

    monkeypatch.setattr(tune_module, "_search", search)
    result = tune(PLAN, lambda _: None)
    assert result.tuning.settings == {}
    assert result.taken_back == {"HOROVOD_FT_GATHER_BYTES": "0"}
    assert all(default == tuned for default, tuned in result.tuning.seconds.values())


def test_a_value_with_which_no_job_starts_is_passed_over(jobs: Callable[[Speed], Jobs]) -> None:
    made = jobs(lambda variables: 0 if "HOROVOD_FT_BIND_TO" in variables else better(variables))
    lines: list[str] = []
    result = tune(PLAN, lines.append)
    assert "binding: auto -> none: not possible (a job failed: no such thing)" in lines[0]
    assert result.tuning.settings == {"HOROVOD_FT_GATHER_BYTES": "0"}
    assert made.running == []


def test_if_the_defaults_do_not_run_that_is_the_error(jobs: Callable[[Speed], Jobs]) -> None:
    made = jobs(lambda variables: 0 if not variables else 1)
    with pytest.raises(HvdFtError, match="no such thing"):
        tune(PLAN, lambda _: None)
    assert made.running == []


def test_when_the_time_is_over_what_is_known_is_taken(jobs: Callable[[Speed], Jobs]) -> None:
    jobs(better)
    out_of_time = Plan((), 4, [4096], 0.0, [BINDING, GATHER])
    result = tune(out_of_time, lambda _: None)
    assert not result.in_time and result.tuning.settings == {}


def test_hosts_are_ordered_as_for_a_job() -> None:
    assert hosts_of("a:1,b:1,a:1", 3) == (Host("a", 2), Host("b", 1))
    assert hosts_of("localhost:2", 2) == hosts_of(None, 2) == ()


def test_rounds_are_compared_by_ratios_of_sizes() -> None:
    assert tune_module.log_ratio([2.0, 8.0], [1.0, 2.0]) == pytest.approx(math.log(8) / 2)
    draw = random.Random(1)
    times = [draw.random() for _ in range(5)]
    assert tune_module.log_ratio(times, times) == 0


def test_small_ops_are_timed_many_in_a_row() -> None:
    assert [in_a_row(size) for size in (4096, 1 << 20, 4 << 20, 64 << 20)] == [16, 4, 1, 1]


@pytest.mark.shows
def test_two_ranks_are_tuned_and_run_so(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    path, picture = tmp_path / "tuning.json", tmp_path / "tuning.png"
    flags = ["-np", "2", "--only", "topology", "--sizes", "4K,300K", "--minutes", "5"]
    ended = run_hvdft(["tune", *flags, "-o", str(path), "--png", str(picture)])
    assert ended.code == 0, ended.err
    assert "tries topology, for 5 min at most" in ended.err
    assert "hvdft: topology: hierarchical -> flat: " in ended.err
    tuning = tuning_file.read(str(path))
    assert (tuning.place.ranks, list(tuning.seconds)) == (2, ["4096", "307200"])
    assert set(tuning.settings) <= {"HOROVOD_FT_TOPOLOGY"}
    assert picture.read_bytes().startswith(b"\x89PNG")
    contents = {**json.loads(path.read_text()), "settings": {"HOROVOD_FT_YIELD_SECONDS": "0"}}
    path.write_text(json.dumps(contents))
    show = ["sh", "-c", "echo yields for $HOROVOD_FT_YIELD_SECONDS"]
    ended = run_hvdft(["run", "-np", "2", "--tuning", str(path), *show])
    assert ended.code == 0, ended.err
    assert f"tuning: {path} sets HOROVOD_FT_YIELD_SECONDS=0 (" in ended.err
    assert "yields for 0" in ended.out


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["-np", "2", "--only", "gather"], "--only gather: not tried here; give some of"),
        (["-np", "4", "-H", "localhost:1"], "has 1 slots for 4 ranks"),
        (["-np", "2", "--minutes", "x"], "is not a number above 0"),
        (["-np", "2", "-o", "/proc/none/file"], "could not be written|cannot be|/proc/none"),
    ],
)
def test_bad_flags_are_told_in_a_line(
    flags: list[str], why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    import re

    from hvd_ft import cli

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    try:
        code = cli.main(["tune", *flags])
    except SystemExit as stop:
        code = int(stop.code or 0)
    *_, line = capsys.readouterr().err.splitlines()
    assert code in (2, 74) and re.search(why, line), line


def test_what_was_compared_is_there_when_a_search_is_cut_short(
    jobs: Callable[[Speed], Jobs],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """What no check has confirmed is told, and not written where jobs would take it."""
    from hvd_ft import cli
    from hvd_ft.tools.tune import space

    made = jobs(better)

    def speed(variables: Mapping[str, str]) -> float:
        if sum("HOROVOD_FT_BIND_TO" in measured for measured in made.measured) == 2:
            signal.raise_signal(signal.SIGTERM)
        return better(variables)

    made.speed = speed
    monkeypatch.setattr(space, "knobs", lambda _: [GATHER, BINDING])
    files = [tmp_path / "tuning.json", tmp_path / "a.png"]
    with pytest.raises(SystemExit) as stop:
        cli.main(["tune", "-np", "2", "-o", str(files[0]), "--png", str(files[1])])
    assert stop.value.code == 143 and made.running == []
    said = capfd.readouterr()
    assert "this run was cut short; what was measured until then" in said.err
    assert "taken so far: HOROVOD_FT_GATHER_BYTES=0; not checked" in said.err
    assert "taken" in said.out and "undecided" in said.out
    assert not files[0].exists() or not files[0].read_bytes()
    assert files[1].read_bytes().startswith(b"\x89PNG")
