"""`hvdft bench`: what it takes, what it counts, what it writes."""

import csv
import io
import signal
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from hvd_ft import cli
from hvd_ft.errors import HvdFtError
from hvd_ft.reports.csv_file import write_csv
from hvd_ft.system.byte_size import parse_bytes
from hvd_ft.tools.bench import allreduce, allreduce_output, copies, known, machine, output, training
from hvd_ft.tools.bench import training_output as shown
from hvd_ft.tools.bench.series import DTYPES, OPS, Row, Times, sizes

PLAN = allreduce.Plan(
    "tensorflow", ("ft", "mpi"), 4, (8, 64), "float32", "sum", 2, True, 3, 1, 2, 60
)
TRAINING = training.Plan("tensorflow", ("ft", "mpi"), 4, {"digits": 100}, 3, 10, 60)
FACTS = {"CPU": "one, 2 cores"}
NUMPY = {"sum": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}


def rows() -> list[Row]:
    """Two sizes; ft takes 2 ms and 1 ms at best, mpi 3 ms and 2 ms."""
    return [
        Row(
            size,
            size // 4,
            4,
            {"ft": Times([0.002, 0.001, 0.002]), "mpi": Times([0.003, 0.004, 0.002], wrong=5)},
        )
        for size in (8, 64)
    ]


def result() -> training.Result:
    return training.Result(
        "digits", 1000, {"ft": [1.0, 2.0, 4.0], "mpi": [3.0, 3.0, 3.0]}, [2.0], [5.5],
        10**6, 2 * 10**6, 3 * 10**6, 4 * 10**6, 30 * 10**6, {"ft": 7 * 10**8, "mpi": 5 * 10**8},
    )  # fmt: skip


def text_of(table: Table) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("text", "count"), [("4", 4), ("64K", 65536), ("1m", 1 << 20), ("2G", 2 << 30)]
)
def test_bytes_with_a_suffix(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "0", "-4", "4.5", "4T", "M", "٤"])
def test_what_is_no_number_of_bytes(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number of bytes"):
        parse_bytes(text)


def test_sizes_go_up_to_the_largest() -> None:
    assert sizes(4, 64, 4, unit=4) == [4, 16, 64]
    assert sizes(4, 100, 4, unit=24) == [48]  # 4 and 16 are too small, 64 is cut to a multiple
    with pytest.raises(HvdFtError, match="less than --min-bytes"):
        sizes(64, 32, 4, unit=4)
    with pytest.raises(HvdFtError, match="less than one element of each tensor"):
        sizes(4, 32, 4, unit=256)


def test_an_iteration_takes_the_mean_of_its_ranks() -> None:
    times = Times()
    times.add_round([[1.0, 2.0], [3.0, 6.0]])
    times.add_round([[9.0], [9.0]])
    assert times.seconds == [2.0, 4.0, 9.0]
    assert (times.median, times.best) == (4.0, 2.0)


def test_bandwidths_and_ratios() -> None:
    row = Row(10**9, 1, 4, {"ft": Times([0.5, 1.0, 2.0]), "mpi": Times([3.0])})
    assert row.algbw("ft") == 1.0
    assert row.busbw("ft") == 1.5  # 2(n - 1)/n
    assert row.ratio("mpi", "ft") == (3.0, 6.0)


@pytest.mark.parametrize(
    ("op", "dtype"),
    [pair for pair in product(OPS, DTYPES) if pair not in product(["average"], ["int32", "int64"])],
)
@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_results_are_those_of_the_contributions(op: str, dtype: str, size: int) -> None:
    count = 1001
    parts = [known.contribution(op, dtype, count, r, size, phase=3) for r in range(size)]
    assert {part.dtype for part in parts} == {np.dtype(dtype)}
    reduce = NUMPY["sum" if op == "average" else op]
    reduced = reduce.reduce(parts, dtype=dtype)
    if op == "average":
        reduced = (reduced / size).astype(dtype)
    else:
        assert np.array_equal(reduced, reduce.reduce(parts[::-1], dtype=dtype)), "not exact"
    expected = known.result(op, dtype, count, size, phase=3)
    assert known.count_wrong(op, reduced, expected) == 0


@pytest.mark.parametrize("op", OPS)
def test_wrong_elements_are_counted(op: str) -> None:
    expected = known.result(op, "float32", 1000, 4, phase=0)
    got = expected.copy()
    got[[0, 500, 999]] += 1
    got[7] = np.nan
    assert known.count_wrong(op, got, expected) == 4
    assert known.count_wrong(op, expected[:-1], expected) == 1000
    assert known.count_wrong(op, expected.astype("float64"), expected) == 1000


def test_stale_missing_doubled_and_shifted_contributions_show() -> None:
    size, count = 4, 1000
    parts = [known.contribution("sum", "float32", count, r, size, phase=0) for r in range(size)]
    expected = known.result("sum", "float32", count, size, phase=0)
    stale = known.result("sum", "float32", count, size, phase=1)
    for got in (stale, sum(parts[1:]), sum(parts) + parts[2], np.roll(expected, 1)):
        assert known.count_wrong("sum", np.asarray(got, "float32"), expected) > count // 2


def test_the_lines_have_the_columns_of_nccl_tests_and_fit() -> None:
    title, _, names, units = allreduce_output.header(PLAN).split("\n")
    assert "4 ranks, 2 tensors together, fused, float32 sum" in title
    expected = "bytes count backend time min algbw busbw #wrong /ft of min"
    assert names.split() == expected.split()
    assert units.split() == ["us", "us", "GB/s", "GB/s"]
    ft, mpi = allreduce_output.lines(PLAN, rows()[0]).split("\n")
    assert ft.split() == ["8", "2", "ft", "2000", "1000", "0.000", "0.000", "0"]
    assert mpi.split() == ["8", "2", "mpi", "3000", "2000", "0.000", "0.000", "5", "1.50", "2.00"]
    assert names.index("backend") + len("backend") == ft.index("ft") + len("ft")
    large = Row(10**10, 10**10 // 4, 4, {"ft": Times([99.0]), "mpi": Times([99.0])})
    most = allreduce_output.lines(PLAN, large).split("\n")
    assert all(len(line) <= 100 for line in [title, names, *most])


def test_the_csv_has_the_facts_on_top(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    lines = allreduce_output.csv_lines(PLAN, rows())
    write_csv(path, FACTS, allreduce_output.CSV_COLUMNS, lines)
    first, *rest = path.read_text().splitlines()
    assert first == "# CPU: one, 2 cores"
    read = list(csv.DictReader(rest))
    assert [(line["bytes"], line["backend"]) for line in read] == [
        *(("8", "ft"), ("8", "mpi"), ("64", "ft"), ("64", "mpi"))
    ]
    assert (read[1]["time_us"], read[1]["min_time_us"]) == ("3000.0", "2000.0")
    assert (read[1]["wrong"], read[1]["time_to_ft"], read[1]["min_time_to_ft"]) == (
        *("5", "1.500", "2.000"),
    )


def test_one_backend_alone_has_no_ratio() -> None:
    plan = allreduce.Plan("tensorflow", ("mpi",), 4, (8,), "float32", "sum", 1, True, 3, 1, 2, 60)
    assert "/ft" not in allreduce_output.header(plan)
    alone = [Row(8, 2, 4, {"mpi": Times([1.0])})]
    assert allreduce_output.csv_lines(plan, alone)[0][-2:] == ["", ""]


def test_training_tables_and_csv() -> None:
    assert result().ratio("mpi") == 1.5
    throughput = text_of(shown.throughput_table(TRAINING, [result()]))
    assert max(len(line.rstrip()) for line in throughput.splitlines()) <= 100
    for part in ("500.00 (250.00 to 1000.00)", "700 MB", "500 MB"):
        assert part in throughput
    text = text_of(shown.failure_table(TRAINING, [result()]))
    for part in ("2.00 (2.00 to 2.00)", "5.50 (5.50", "3.50", "3 MB", "4 MB", "30 MB"):
        assert part in text
    lines = shown.csv_lines([result()])
    assert lines[0] == ["digits", "throughput", "ft", 0, "1.0000", "1000.00"]
    assert lines[-1][:5] == ["digits", "one kill", "ft", 0, "5.5000"]


def test_pictures_are_written_or_say_why_not(tmp_path: Path) -> None:
    drawn = {
        "a.png": allreduce_output.picture(PLAN, rows()),
        "t.png": shown.picture(TRAINING, [result()]),
    }
    for name, figure in drawn.items():
        output.write_picture(tmp_path / name, figure)
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    with pytest.raises(HvdFtError, match="none/p could not be written"):
        output.write_picture(tmp_path / "none" / "p", Figure())
    with pytest.raises(HvdFtError, match="none/p could not be written"):
        write_csv(tmp_path / "none" / "p", {}, (), ())


def test_the_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_COPY_BYTES", 1 << 20)
    facts = machine.facts()
    assert set(facts) == {"CPU", "caches", "kernel", "memory bandwidth"}
    assert "GB/s" in facts["memory bandwidth"]


def test_wrong_results_fail_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(allreduce, "measure", lambda plan, show: iter(rows()))
    monkeypatch.setattr(machine, "facts", lambda: FACTS)
    path = tmp_path / "a.csv"
    assert cli.main(["bench", "allreduce", "--csv", str(path)]) != 0
    out, err = capsys.readouterr()
    assert err == "hvdft: 10 elements came out wrong, see #wrong; do not use this backend\n"
    assert out.splitlines()[0] == "CPU: one, 2 cores"
    assert path.read_text().count("\n") == 6  # what was measured is written all the same


@pytest.mark.parametrize("kind", ["allreduce", "training"])
def test_help_has_an_example(capsys: pytest.CaptureFixture[str], kind: str) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["bench", kind, "--help"])
    assert stop.value.code == 0
    assert f"Example: hvdft bench {kind}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["allreduce", "--backends", "ft,gloo"], "leave it out, as in --backends ft,mpi"),
        (["allreduce", "--backends", "nccl"], "'nccl' is not a backend"),
        (["allreduce", "--backends", ""], "'' is not a backend"),
        (["allreduce", "-np", "1"], "'1' is not a number, 2 or more"),
        (["allreduce", "--max-bytes", "lots"], "'lots' is not a number of bytes"),
        (["allreduce", "--min-bytes", "1M", "--max-bytes", "1K"], "less than --min-bytes"),
        (["allreduce", "--dtype", "complex64"], "invalid choice: 'complex64'"),
        (["allreduce", "--op", "average", "--dtype", "int32"], "truncated by Horovod"),
        (["allreduce", "--warmup", "0"], "'0' is not a number, 1 or more"),
        (["allreduce", "--factor", "1"], "'1' is not a number, 2 or more"),
        (["allreduce", "--csv", "none/x"], "cannot write none/x"),
        (["training", "--png", "none/x"], "cannot write none/x"),
        (["training", "--models", "digits,vgg"], "'vgg' is not a model"),
        (["training", "--models", "digits:no"], "'no' is not a number"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    part: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = cli.main(["bench", *arguments])
    except SystemExit as stop:
        code = int(stop.code or 0)
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("hvdft: ")
    assert err.count("\n") == 1
    assert part in err


def test_the_copies_alone_copy_everything() -> None:
    # Less than a piece, pieces and a rest, and more than the window.
    inputs = [np.arange(n, dtype=np.float32) + n for n in (3, 70_000, 300_001)]
    outputs = [np.zeros_like(each) for each in inputs]
    copies.copying(inputs, outputs)()
    for given, got in zip(inputs, outputs, strict=True):
        np.testing.assert_array_equal(given, got)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda: signal.raise_signal(signal.SIGINT), 130),
        (lambda: signal.raise_signal(signal.SIGTERM), 143),
        (lambda: (_ for _ in ()).throw(HvdFtError("a round took too long")), 2),
    ],
    ids=["ctrl-c", "a time limit", "a failure"],
)
def test_what_was_measured_is_there_when_a_run_is_cut_short(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    end: Callable[[], object],
    code: int,
) -> None:
    out = []

    def measure(plan: allreduce.Plan, show: object) -> Iterator[Row]:
        yield rows()[0]
        out.append(capfd.readouterr().out)
        end()

    monkeypatch.setattr(allreduce, "measure", measure)
    files = [str(tmp_path / "a.csv"), str(tmp_path / "a.png")]
    try:
        got = cli.main(["bench", "allreduce", "--csv", files[0], "--png", files[1]])
    except SystemExit as stop:
        got = int(stop.code or 0)
    assert got == code
    assert "allreduce, 4 ranks" in out[0]
    row = allreduce_output.lines(PLAN, rows()[0])
    assert f"{row}\n" in out[0], "before the next one is measured"
    captured = capfd.readouterr()
    assert "this run was cut short; what was measured until then" in captured.err
    lines = [line for line in Path(files[0]).read_text().splitlines() if line[0] != "#"]
    assert [line.split(",")[0] for line in lines] == ["bytes", "8", "8"]
    assert Path(files[1]).read_bytes().startswith(b"\x89PNG")


def test_training_that_is_cut_short_shows_the_models_that_were_measured(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def measure(plan: object, results: list[training.Result], show: object, tell: object) -> None:
        results.append(result())
        results.append(training.Result("cnn", 10, {"ft": [1.0], "mpi": []}))
        raise HvdFtError("a worker has died")

    monkeypatch.setattr(training, "measure", measure)
    table, picture = tmp_path / "t.csv", tmp_path / "t.png"
    assert cli.main(["bench", "training", "--csv", str(table), "--png", str(picture)]) == 2
    captured = capfd.readouterr()
    assert "digits" in captured.out and "lost by the kill" in captured.out
    assert "cnn,throughput,ft,0" in table.read_text()
    assert picture.exists()
    assert captured.err.splitlines()[-1] == "hvdft: a worker has died"
