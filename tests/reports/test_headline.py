"""The first lines of a report."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from synthetic import one_failure

from hvd_ft.reports.headline import headline, identity
from hvd_ft.reports.pieces import pieces_of
from hvd_ft.reports.report import Report, read_report

OLD = Path(__file__).parent / "version-0.jsonl"


def test_it_says_how_the_run_ended_and_what_it_has_cost() -> None:
    facts = {"job": "j", "exit_code": 0, "ranks": [{"step": 40}, {"step": 41}]}
    report = Report(facts, one_failure())
    assert headline(report) == "done: 41 steps, 1 failure, 2.9 s lost, 0 steps lost"
    failed = Report({**facts, "exit_code": 3}, ())
    assert headline(failed) == "ended with code 3: 41 steps, 0 failures"
    assert headline(Report({"job": "j"}, ())).startswith("UNFINISHED")


def test_it_says_which_run_it_was() -> None:
    facts = {
        "job": "j", "size": 3, "hosts": ["a", "a", "b"], "version": "0.2.0", "date": "today",
        "command": ["python", "a b.py"],
    }  # fmt: skip
    expected = "job j, 3 ranks on a:2,b:1, hvd_ft 0.2.0, begun today, python 'a b.py'"
    assert identity(Report(facts, ())) == expected
    later = identity(Report({**facts, "commit": "0123456789ab"}, ()))
    assert later == expected.replace("0.2.0", "0.2.0 (commit 0123456789ab)")


@pytest.mark.parametrize("failures", [1, 9])
def test_everything_fits_into_80_columns(failures: int) -> None:
    report = read_report(OLD)
    pieces = list(pieces_of(report))
    if failures > 1:
        [one] = [event for event in report.events if event.type.name == "FAILED"]
        again = [one.__class__(one.time_ns + n, one.type, one.rank, n, 256 * 127)
                 for n in range(failures)]  # fmt: skip
        pieces = list(pieces_of(Report(report.facts, [*report.events, *again])))
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=False)
    for piece in pieces:
        if not isinstance(piece, str):
            console.print(piece)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in out.getvalue().replace("every … steps", "")  # nothing is cut
