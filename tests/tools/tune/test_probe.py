"""The probe: threads on one endpoint against endpoints, and IMB-MT as its referee."""

import csv
import io
import json
import shutil
import signal
from pathlib import Path

import pytest
from conftest import RunHvdft
from rich.console import Console

from hvd_ft import cli
from hvd_ft.errors import HvdFtError
from hvd_ft.mpi import capabilities
from hvd_ft.mpi.environment import split_into
from hvd_ft.native.mpi import Facts
from hvd_ft.tools.tune import probe, probe_output, probe_rank, referee
from hvd_ft.tools.tune.probe import ENDPOINTS, OURS, REFEREE, SHARED, Cell, Found, Plan

PLAN = Plan((), "shm", [8, 4096], [1, 2], 3, 0.05, (OURS, REFEREE))


def found() -> Found:
    """Endpoints are twice as fast with two threads, and as fast with one; IMB-MT a little less."""
    made = Found()
    for by, factor in ((OURS, 1.0), (REFEREE, 0.5)):
        for threads in PLAN.threads:
            for size in PLAN.sizes:
                for number in range(3):
                    rate = factor * 1000 * (number + 1)
                    made.add(Cell(by, SHARED, threads, size), rate)
                    made.add(Cell(by, ENDPOINTS, threads, size), rate * threads)
    return made


def test_gains_are_those_of_rounds_side_by_side() -> None:
    made = found()
    # A machine that slows down from round to round: the medians of the sides say nothing.
    made.rates[Cell(OURS, SHARED, 2, 8)] = [100.0, 10.0, 1.0]
    made.rates[Cell(OURS, ENDPOINTS, 2, 8)] = [200.0, 20.0, 1.5]
    assert made.gain(OURS, 2, 8) == 2.0
    assert made.gain(OURS, 2, 4096) == 2.0
    assert made.gain(OURS, 4, 8) is None


def test_table_lines_and_picture() -> None:
    console = Console(file=io.StringIO(), width=200)
    console.print(probe_output.table(PLAN, found()))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "both directions at once" in text
    [line] = [line for line in text.splitlines() if "4K" in line and "2.00" in line]
    cells = [cell.strip() for cell in line.split("│")[1:-1]]
    assert cells == ["2", "4K", "2,000", "8.2", "4,000", "16.4", "2.00",
                     "1,000", "4.1", "2,000", "8.2", "2.00"]  # fmt: skip
    assert len(probe_output.csv_lines(found())) == 2 * 2 * 2 * 2 * 3
    figure = probe_output.picture(PLAN, found())
    assert len(figure.axes[0].lines) == 8


def test_the_referees_agreement() -> None:
    made = found()
    [line] = probe_output.agreement(PLAN, made)
    assert "2.00 to 2.00 times its; both have a winner of every round in 2 of 4 cells" in line
    assert line.endswith("the same one in 2")
    made.rates[Cell(REFEREE, ENDPOINTS, 2, 8)] = [1.0, 1.0, 1.0]
    [line] = probe_output.agreement(PLAN, made)
    assert "in 2 of 4 cells" in line and line.endswith("the same one in 1")
    made.rates[Cell(REFEREE, ENDPOINTS, 2, 8)] = [1.0, 1.0, 2000.0]  # it has no winner
    [line] = probe_output.agreement(PLAN, made)
    assert "in 1 of 4 cells" in line and line.endswith("the same one in 1")
    assert probe_output.agreement(Plan((), "shm", [8], [1], 1, 0.1), made) == []


IMB = """
#-----------------------------------------------------------------------------
# Benchmarking BiBandMT
# #processes = 2 (threads: 2)
# window_size = 64
#-----------------------------------------------------------------------------
       #bytes  #repetitions   t_avg[usec]    Mbytes/sec       Msg/sec
           16           100          1.50         10.67       1333333

"""
SLOW = "      8388608             2    4000000.00          2.10             0"


def test_imb_mts_table_is_read() -> None:
    assert referee.parse(IMB, 2) == 1333333.0
    lines = IMB.splitlines()
    assert referee.parse("\n".join([*lines[:-2], SLOW]), 2) == 0.5
    for other in ("", IMB.replace("BiBandMT", "PingPongMT"), "# Benchmarking BiBandMT"):
        with pytest.raises(HvdFtError, match="printed no table of BiBandMT"):
            referee.parse(other, 2)


def test_imb_mt_takes_as_long_as_the_probe_with_every_size() -> None:
    """Small messages once had the repetitions of large ones: 8 ms, of which chance was most."""

    def flags(size: int, window: int, rate: float) -> dict[str, str]:
        program, benchmark, *words = referee.command(size, window, rate, seconds=0.5)
        assert (program, benchmark) == ("IMB-MT", "BiBandMT")
        return dict(zip(words[::2], words[1::2], strict=True))

    small = flags(8, 64, 1e6)
    assert (small["-count"], small["-window_size"]) == ("8", "64")
    assert small["-repeat"] == str(round(0.5 * 1e6 / (2 * 64)))
    assert flags(4 << 20, 4, 8.0)["-repeat"] == "2"  # at the least


def test_a_slow_first_window_does_not_shorten_a_measurement() -> None:
    tried: list[int] = []

    def nanoseconds_of(windows: int) -> int:
        tried.append(windows)
        return 50_000 * windows + (4_000_000 if windows == 1 else 0)  # its pages are new

    assert probe_rank.windows_for(0.1, nanoseconds_of) == 2000
    assert tried == [2**at for at in range(9)]  # 12.8 ms are more than a tenth


def test_mpi_is_split_into_as_many_threads_as_asked_for() -> None:
    assert split_into(1) == {"I_MPI_THREAD_SPLIT": "0"}
    split = split_into(5)
    assert (split["I_MPI_THREAD_SPLIT"], split["I_MPI_THREAD_MAX"]) == ("1", "5")


def test_what_lacks_endpoints_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = Facts(True, True, 3, "Intel MPI", "libmpi.so")
    assert capabilities.why_fewer_endpoints(facts, 3) == ""
    assert "with 3 endpoints, and 4 are needed" in capabilities.why_fewer_endpoints(facts, 4)
    unsplit = Facts(True, True, 1, "Intel MPI", "libmpi.so")
    monkeypatch.setenv("FI_PROVIDER", "tcp")
    assert "split threads" in capabilities.why_fewer_endpoints(unsplit, 3)
    monkeypatch.setenv("FI_PROVIDER", "mlx")
    assert "provider mlx" in capabilities.why_fewer_endpoints(unsplit, 3)
    serial = Facts(True, False, 1, "Intel MPI", "libmpi.so")
    assert "MPI_THREAD_MULTIPLE" in capabilities.why_fewer_endpoints(serial, 1)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["-np", "3"], "a probe is between two ranks"),
        (["-H", "127.0.0.1:1,localhost:1,n3:1"], "not known here|one rank on each of two hosts"),
        (["--sizes", "0"], "is not a number of bytes"),
        (["--threads", "1,x"], "is not a number, 1 or more"),
        (["--seconds", "0"], "is not a number above 0"),
    ],
)
def test_bad_flags_are_told_in_a_line(
    flags: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import re

    try:
        code = cli.main(["probe", *flags])
    except SystemExit as stop:
        code = int(stop.code or 0)
    [line] = capsys.readouterr().err.splitlines()
    assert code == 2 and re.search(why, line), line


class Programs:
    """In the place of mpiexec: notes what is started, and prints what that would."""

    def __init__(self, why: str = "") -> None:
        self.why = why
        self.started: list[tuple[str, str, list[str]]] = []  # program, split threads, command

    def run(self, _: Plan, command: list[str], variables: dict[str, str]) -> str:
        program = "IMB-MT" if command[0] == "IMB-MT" else "hvdft"
        self.started.append((program, variables["I_MPI_THREAD_SPLIT"], command))
        if program == "IMB-MT":
            return IMB
        split = "--split" in command
        why = self.why if split else ""
        lines: list[dict[str, object]] = [{"library": "MPI", "providers": ["tcp"], "why": why}]
        for threads in () if why else (2,):
            line = {"threads": threads, "bytes": 8, "window": 64, "wrong": 0}
            lines.append({**line, "messages_per_second": 1e6 if split else 100.0})
        return "".join(json.dumps(line) + "\n" for line in lines)


def test_sides_take_turns_and_the_referee_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Programs()
    monkeypatch.setattr(probe, "_run", programs.run)
    made = probe.measure(Plan((), "shm", [8], [2], 2, 0.5, (OURS, REFEREE)), lambda _: None)
    assert [(program, split) for program, split, _ in programs.started] == [
        ("hvdft", "0"), ("IMB-MT", "0"), ("hvdft", "1"), ("IMB-MT", "1"),
        ("hvdft", "1"), ("IMB-MT", "1"), ("hvdft", "0"), ("IMB-MT", "0"),
    ]  # fmt: skip
    assert made.rates[Cell(OURS, SHARED, 2, 8)] == [100.0, 100.0]
    assert made.gain(OURS, 2, 8) == 1e4 and made.between == "libfabric tcp"
    repeats = [command[command.index("-repeat") + 1] for _, _, command in programs.started[1::2]]
    assert repeats == ["2", *[str(round(0.5 * 1e6 / 128))] * 3]  # by the faster side's rate


def test_without_endpoints_only_one_side_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Programs("libfabric's provider mlx has no multiple endpoints: choose another")
    monkeypatch.setattr(probe, "_run", programs.run)
    made = probe.measure(Plan((), "ofi", [8], [2], 3, 0.5), lambda _: None)
    assert [split for _, split, _ in programs.started] == ["0", "1", "0", "0"]
    assert "mlx" in made.why and made.gain(OURS, 2, 8) is None


def rows(path: Path) -> list[dict[str, str]]:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


@pytest.mark.shows
@pytest.mark.parametrize("fabric", ["shm", "ofi"])
def test_both_sides_are_measured(run_hvdft: RunHvdft, tmp_path: Path, fabric: str) -> None:
    path, picture = tmp_path / "out.csv", tmp_path / "out.png"
    flags = ["--threads", "2", "--sizes", "8,100,64K", "--rounds", "1", "--seconds", "0.005"]
    files = ["--csv", str(path), "--png", str(picture), "--fabric", fabric]
    ended = run_hvdft(["probe", *flags, *files])
    assert ended.code == 0, ended.err
    over = "shared memory" if fabric == "shm" else "libfabric tcp"
    assert f"between the ranks: {over}" in ended.out
    measured = rows(path)
    cells = {(row["side"], int(row["threads"]), int(row["bytes"])) for row in measured}
    assert cells == {(side, 2, size) for side in probe.SIDES for size in (8, 100, 65536)}
    assert len(measured) == len(cells)
    assert all(float(row["messages_per_second"]) > 1 for row in measured)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.job
def test_the_referee_measures_beside(run_hvdft: RunHvdft, tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    flags = ["--threads", "2", "--sizes", "8,1M", "--rounds", "1", "--seconds", "0.01"]
    ended = run_hvdft(["probe", *flags, "--referee", "--csv", str(path)])
    if ended.code and "pip install intel-openmp" in ended.err:
        pytest.skip("IMB-MT needs intel-openmp")
    if shutil.which("IMB-MT") is None and "IMB-MT" in ended.err:
        pytest.skip("IMB-MT (impi-devel) was not found")
    assert ended.code == 0, ended.err
    assert "IMB-MT: our rates with one endpoint are" in ended.out
    assert {row["by"] for row in rows(path)} == {OURS, REFEREE}
    assert len(rows(path)) == 8


def test_what_was_measured_is_there_when_a_probe_is_cut_short(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    programs = Programs()

    def run(plan: Plan, command: list[str], variables: dict[str, str]) -> str:
        if len(programs.started) == 3:
            signal.raise_signal(signal.SIGINT)
        return programs.run(plan, command, variables)

    monkeypatch.setattr(probe, "_run", run)
    files = [tmp_path / "a.csv", tmp_path / "a.png"]
    flags = ["--sizes", "8", "--threads", "2", "--csv", str(files[0]), "--png", str(files[1])]
    with pytest.raises(SystemExit) as stop:
        cli.main(["probe", *flags])
    assert stop.value.code == 130
    said = capfd.readouterr()
    assert "this run was cut short; what was measured until then" in said.err
    assert "medians of 1 to 2" in said.out
    assert "10000.00" in said.out
    lines = [line for line in files[0].read_text().splitlines() if line[0] != "#"]
    assert len(lines) == 1 + 3
    assert files[1].read_bytes().startswith(b"\x89PNG")
