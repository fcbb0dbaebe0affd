"""The examples run, survive a kill, and are short."""

import json
import sys
from pathlib import Path

import pytest
from conftest import CLIENTS, CLIENTS_ARE_THERE, ROOT, TORCH_IS_THERE, RunHvdft

pytest.importorskip("sklearn")

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# tests/pytorch/test_installed.py says when the clients are not there.
OF_CLIENTS = [path for path in EXAMPLES if any(name in path.stem for name in CLIENTS)]
RUNNABLE = [path for path in EXAMPLES if CLIENTS_ARE_THERE or path not in OF_CLIENTS]


@pytest.mark.shows
@pytest.mark.parametrize("example", RUNNABLE, ids=lambda path: path.stem)
def test_an_example_survives_a_kill(run_hvdft: RunHvdft, example: Path, tmp_path: Path) -> None:
    if "torch" in example.stem and not TORCH_IS_THERE:
        pytest.skip("PyTorch is not installed (make setup TORCH=1)")
    # The one with laps loses rank 0, which notes them.
    more = ["--csv", str(tmp_path / "laps.csv")] if "estimator" in example.stem else []
    victim = 0 if more else 1
    command = [sys.executable, str(example), "--epochs", "4", *more]
    ended = run_hvdft(
        ["run", "-np", "2", "--inject", f"rank={victim},step=40", *command], timeout=240
    )
    assert ended.code == 0, ended.err
    results = [json.loads(line) for line in ended.out.splitlines() if line.startswith("{")]
    assert {r["rank"]: r["incarnation"] for r in results} == {victim: 1, 1 - victim: 0}
    assert len({result["weights_sha256"] for result in results}) == 1
    assert all(result["accuracy"] > 0.9 for result in results), results
    if more:
        ends = [float(lap.split(",")[1]) for lap in Path(more[1]).read_text().splitlines()[1:]]
        assert [int(end) for end in ends] == [1, 2, 3, 4]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_shows_what_is_new(example: Path) -> None:
    text = example.read_text()
    assert len(text.splitlines()) < 80
    assert text.count("# new") >= 2
