"""Jobs of Lightning and Accelerate whose ranks are killed at every named point."""

from pathlib import Path

import pytest
from conftest import SCRIPTS, Once, RunHvdft
from test_torch_kills import DRILLS, PYTHON, train

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.mark.parametrize("name", DRILLS)
@pytest.mark.parametrize("client", ["lightning", "accelerate"])
def test_ranks_killed_at_every_point_change_nothing(
    run_hvdft: RunHvdft, once: Once, tmp_path: Path, client: str, name: str
) -> None:
    script = [*PYTHON, str(SCRIPTS / f"torch_{client}_script.py"), "plain", "snapshots"]

    def whole(folder: Path) -> None:
        found = train(run_hvdft, [*script, str(folder / "whole")])
        (folder / "results").write_text(repr(found))

    expected = (once(f"torch-undisturbed-{client}", whole) / "results").read_text()
    found = train(run_hvdft, [*script, str(tmp_path / "killed")], DRILLS[name])
    assert repr(found) == expected
