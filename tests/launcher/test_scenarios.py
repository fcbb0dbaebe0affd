"""The launcher's machine, event by event: files that one can read, and whose outputs are compared.

A change of behaviour is a difference in these files: REWRITE_SCENARIOS=1 writes what comes out now.
"""

import os
from pathlib import Path

import pytest
from scenario import replay

FILES = sorted((Path(__file__).parent / "scenarios").rglob("*.txt"))
REWRITE = "REWRITE_SCENARIOS"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_actions_are_these(path: Path) -> None:
    before = path.read_text(encoding="utf-8")
    after = replay(before)
    if os.environ.get(REWRITE):
        path.write_text(after, encoding="utf-8")
        return
    assert after == before, f"{path.name} differs; if it should, {REWRITE}=1 writes it anew"


def test_there_are_scenarios() -> None:
    assert len(FILES) > 50
