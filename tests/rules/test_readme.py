"""The README's figures are those that were measured, and what it promises is shown by a test."""

import csv
import re
import statistics
from collections.abc import Iterator

import pytest
from conftest import ROOT

FOLDER = ROOT / "experiments" / "failures"
README = (ROOT / "README.md").read_text()
# The sides of the experiment, by a word of the README's row.
SIDES = {
    "**hvd_ft**": "ft",
    "warm spare": "ft-spare",
    "Elastic": "elastic-5s",
    "stock Horovod": "stock",
}
# A test for each row of the table of what dies, by words of the row.
SHOWN = {
    "a rank, rank 0 too": ("tests/jobs/test_recovery.py", "rank=0"),
    "an agent, mpirun, MPI itself": ("tests/jobs/test_generations.py", '"mpirun,step=20"'),
    "a host that has a [spare]": ("tests/jobs/test_lost_hosts.py", "--spare-hosts"),
    "a host without a spare": ("tests/jobs/test_resizing_jobs.py", "--min-np"),
    "a host or link that is only silent": ("tests/jobs/test_network.py", "def test_"),
    "the host of `hvdft run`": ("tests/jobs/test_checkpoints.py", "--resume"),
    "the time limit of a scheduler": ("tests/jobs/test_slurm.py", "train.sbatch"),
}


def rows(heading: str) -> Iterator[list[str]]:
    """Yields the cells of the rows of the table whose first heading this is."""
    lines = README.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {heading}"))
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]


def read(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("words", SIDES)
def test_the_figures_are_the_medians_that_were_measured(words: str) -> None:
    [row] = [row for row in rows("one of 4 ranks is killed") if words in row[0]]
    side = SIDES[words]
    runs = [run for run in read("results.csv") if run["side"] == side]
    lost = statistics.median(float(r["lost_s"]) for r in read("lost.csv") if r["side"] == side)
    quiet, struck = (
        statistics.median(float(run["seconds"]) for run in runs if run["every"] == every)
        for every in ("0.0", "20.0")
    )
    most = statistics.median(float(run["most_mib"]) for run in runs)
    expected = [f"{lost:.1f} s", f"{quiet:.0f} s", f"{struck:.0f} s", f"{most / 1024:.2f} GiB"]
    assert row[1:] == expected


def test_every_row_of_what_dies_is_shown_by_a_test() -> None:
    found = [row[0] for row in rows("what dies")]
    assert len(found) == len(SHOWN)
    for row in found:
        [(path, words)] = [test for start, test in SHOWN.items() if row.startswith(start)]
        assert words in (ROOT / path).read_text(), row


def test_the_front_page_is_short_and_leads_to_the_others() -> None:
    assert len(re.findall(r"\]\(", README)) < 45
    assert "](docs/index.md)" in README
    index = (ROOT / "docs" / "index.md").read_text()
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    unnamed = {page for page in pages if f"]({page})" not in index}
    # The design has a page that leads to its own.
    assert {page for page in unnamed if not page.startswith("internals/")} == {"index.md"}
