"""A rank that hands over late while others compute costs nothing, and is not named as slow."""

from pathlib import Path

import pytest
from conftest import SCRIPTS, RunHvdft
from slow_jobs import named


@pytest.mark.shows(later=True)
def test_a_rank_that_is_behind_at_no_cost_is_not_named_and_a_slow_one_is(
    run_hvdft: RunHvdft, tmp_path: Path
) -> None:
    named(run_hvdft, tmp_path / "run.jsonl", str(SCRIPTS / "torch_beside_script.py"), rank=2)
