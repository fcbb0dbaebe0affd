"""How a job's status is shown: at 80 columns, without colours, and with more ranks than lines."""

import io
from typing import Any

import msgspec
import pytest
from job_statuses import job, rank
from rich.console import Console

from hvd_ft.errors import HvdFtError
from hvd_ft.status.command import end_line, jobs_table
from hvd_ft.status.snapshot import (
    Checkpoints,
    JobStatus,
    Lateness,
    Member,
    RankTimes,
    Recovery,
    Wait,
)
from hvd_ft.status.table import rank_words, status_view, wait_words
from hvd_ft.status.watch import readings, watch


def shown(status: JobStatus, width: int = 80, height: int | None = None) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(status_view(status, height))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert "\x1b" not in "".join(lines)
    assert all(len(line) <= width for line in lines)
    return [line.rstrip() for line in lines]


def test_a_job_on_one_host() -> None:
    waits = Wait(kind="contribution", ranks=[1], op=500)
    lines = shown(job(rank(0, waits_for=waits), rank(1)))
    assert lines[0] == ("job k3j0a1 on n0: running, 2 ranks, step 250, 12.5 steps/s, generation 1")
    assert lines[1].split() == [
        *["rank", "state", "for", "step", "steps/s", "restarts", "waits", "for"]
    ]
    assert lines[2].split() == [
        *["0", "running", "12.0", "s", "250", "12.5", "-", "rank", "1", "(op", "500)"]
    ]
    assert lines[3].split() == [*["1", "running", "12.0", "s", "250", "12.5", "-"]]
    assert "log: 500 ops, 40 held; snapshots: 3, every 10 steps" in lines


def test_a_job_on_several_hosts_fits_80_columns() -> None:
    ranks = [
        rank(
            number,
            host=f"gpu-node-{number:05}.cluster.example",
            here=number > 0,
            state="restarting" if number == 1 else "waiting",
            waits_for=Wait(kind="contribution", ranks=list(range(1, 40)), op=123456789),
        )
        for number in range(3)
    ]
    members = [
        Member(host=r.host or "", first_rank=r.rank, ranks=1, leaving=r.rank == 2) for r in ranks
    ]
    lines = shown(job(*ranks, members=members, rank_0_here=False, news_seconds=2.25))
    assert any(line.startswith("read on another node than rank 0's") for line in lines)
    assert "3 hosts (epoch 0), without gpu-node-00002" in " ".join(lines[:2])
    assert "latest news of these: 2.2 s ago" in " ".join(lines)
    shown_ranks = [line.split() for line in lines if "ranks 1-39" in line]
    assert [words[:3] for words in shown_ranks] == [
        ["0~", "gpu-node-00000", "waiting"],
        ["1", "gpu-node-00001", "restarting"],
        ["2", "gpu-node-00002", "waiting"],
    ]


def test_what_failures_were_is_below() -> None:
    back = Recovery(
        rank=1,
        incarnation=0,
        cause="signal 9",
        seconds_ago=30.0,
        parts={"import": 2.5},
        total_seconds=3.5,
    )
    away = msgspec.structs.replace(back, incarnation=1, parts={}, total_seconds=None)
    text = "\n".join(
        shown(
            job(
                rank(0),
                recoveries=[back, away],
                checkpoints=Checkpoints(written=2, under_way=True, latest_seconds_ago=60.0),
                diverged=1,
                report="/runs/a.jsonl",
            )
        )
    )
    assert "rank 1 (signal 9) 30.0 s ago: back after 3.5 s (import 2.5 s)" in text
    assert "rank 1 (signal 9) 30.0 s ago: not back yet\n" in text + "\n"
    assert "checkpoints: 2, the latest 60.0 s ago, one is being written" in text
    assert "variables diverged 1 times: see the report" in text
    assert "report: /runs/a.jsonl" in text


def test_ranks_that_only_run_give_way() -> None:
    ranks = [rank(number, state="waiting" if number == 77 else "running") for number in range(100)]
    lines = shown(job(*ranks), height=24)
    assert len(lines) <= 24
    assert any(line.split()[:2] == ["77", "waiting"] for line in lines)
    assert "and 92 more ranks that run" in lines
    assert len(shown(job(*ranks))) > 100


@pytest.mark.parametrize(
    ("wait", "words"),
    [
        (None, ""),
        (Wait(kind="sum", op=7), "the sum (op 7)"),
        (Wait(kind="announcement"), "the agreement"),
        (Wait(kind="announcement", ranks=[0, 1, 2, 5]), "ranks 0-2, 5"),
        (Wait(kind="rank", ranks=[3]), "rank 3"),
    ],
)
def test_waits_in_words(wait: Wait | None, words: str) -> None:
    assert wait_words(wait) == words


def test_ranks_in_words() -> None:
    assert rank_words([4]) == "rank 4"
    assert rank_words([1, 3, 4, 5, 8, 9]) == "ranks 1, 3-5, 8-9"


# ---------------------------------------------------------------- watching


class Job:
    """A job that ends after some readings."""

    def __init__(self, *statuses: JobStatus | None) -> None:
        self._statuses = list(statuses)
        self.looks = 0
        self.slept = 0.0

    def look(self) -> None:
        self.looks += 1

    def read(self) -> JobStatus | None:
        return self._statuses.pop(0)

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


def test_a_watch_ends_with_the_job() -> None:
    runs, over = job(rank(0)), job(rank(0), state="over")
    for ends in (over, job(rank(0), state="dead"), None):
        watched = Job(runs, runs, ends)
        seen = list(readings(watched.look, watched.read, watched.sleep))
        assert seen == [each for each in (runs, runs, ends) if each]
        assert watched.looks == 10
        assert watched.slept == pytest.approx(1.0)


def terminal() -> Console:
    return Console(
        file=io.StringIO(),
        width=80,
        height=30,
        force_terminal=True,
        color_system=None,
        _environ={"TERM": "xterm"},
    )


def test_the_last_status_stays_on_the_terminal() -> None:
    console = terminal()
    last = job(rank(0), state="over", step=999)
    assert watch(iter([job(rank(0)), last]), console) == last
    assert isinstance(console.file, io.StringIO)
    drawn, _, below = console.file.getvalue().rpartition("\x1b[?1049l")
    assert "\x1b[?1049h" in drawn
    assert "step 999" in below
    assert "\x1b[?25h" in below or "\x1b[?25h" in drawn, "the cursor is back"


def test_ctrl_c_leaves_the_screen() -> None:
    def interrupted() -> Any:
        yield job(rank(0))
        raise KeyboardInterrupt

    console = terminal()
    assert watch(interrupted(), console) == job(rank(0))
    assert isinstance(console.file, io.StringIO)
    assert "\x1b[?1049l" in console.file.getvalue()


def test_without_a_terminal_there_is_no_watch() -> None:
    with pytest.raises(HvdFtError, match="the output is none; leave --watch out"):
        watch(iter([]), Console(file=io.StringIO()))


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (None, "the job has ended"),
        (job(rank(0), state="dead"), "hvdft clean k3j0a1 removes its files"),
        (job(rank(0), state="over"), "it has no report that is known here"),
        (job(rank(0), state="over", report="/a.jsonl"), "hvdft report /a.jsonl shows what"),
        (job(rank(0), report="/a.jsonl"), "job k3j0a1 has ended; hvdft report /a.jsonl"),
    ],
)
def test_the_line_about_the_end(last: JobStatus | None, said: str) -> None:
    assert said in end_line(last)


def test_several_jobs_are_listed() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(jobs_table([("a", "running", "2", "7", "-"), ("b", "over", "1", "9", "/r")]))
    assert isinstance(console.file, io.StringIO)
    assert "b    over" in console.file.getvalue()


def test_who_waits_least_is_named() -> None:
    times = RankTimes(compute_seconds=9.0, wait_seconds=0.5, copy_seconds=0.5, network_seconds=0.0)
    never = RankTimes(compute_seconds=0.0, wait_seconds=0.0, copy_seconds=0.0, network_seconds=0.0)
    text = " ".join(shown(job(rank(0), rank(1), rank(2, times=times), rank(3, times=never))))
    assert "30% of the time (median), rank 2 least: 5%" in " ".join(text.split())
    assert "slower ranks" not in " ".join(shown(job(rank(0))))


def test_the_rank_that_came_last_is_shown_with_its_lateness() -> None:
    def late(first: float, median: float) -> Lateness:
        return Lateness(
            ops=64,
            after_first_seconds=first,
            after_median_seconds=median,
            waited_seconds=0.0003,
        )

    ranks = (rank(0, lateness=late(0, -0.005)), rank(1, lateness=late(0.0412, 0.038)))
    text = " ".join(" ".join(shown(job(*ranks))).split())
    assert "latest 64 ops: rank 1 came 41.2 ms after this node's first rank and 38.0 ms" in text
    assert "then waited 0.3 ms" in text


def test_copies_and_network_are_shown_apart_for_the_rank_that_waits_least() -> None:
    times = RankTimes(compute_seconds=6.0, wait_seconds=1.0, copy_seconds=2.0, network_seconds=1.0)
    text = " ".join(" ".join(shown(job(rank(0), rank(1, times=times)))).split())
    assert "rank 1 was blocked by ops: 20% of the time for copies" in text
    assert "10% for the network" in text
