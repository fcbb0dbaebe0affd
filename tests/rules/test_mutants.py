"""The list of `make mutants` fits the code; that target itself shows whether tests notice them."""

import runpy
from pathlib import Path

import pytest
from conftest import ROOT

SCRIPT = ROOT / "scripts" / "mutants.py"


def test_each_of_them_can_be_applied() -> None:
    mutants = runpy.run_path(str(SCRIPT))["read_list"]()
    assert len({mutant.name for mutant in mutants}) == len(mutants) > 60
    assert all(mutant.old != mutant.new for mutant in mutants)


def test_one_that_no_longer_fits_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = runpy.run_path(str(SCRIPT))
    old = tmp_path / "mutants.toml"
    old.write_text(
        '[[mutant]]\nname = "gone"\nfile = "setup.py"\nold = "no such text"\nnew = ""\n'
        'tests = ["tests/rules/test_layout.py"]\n'
    )
    monkeypatch.setitem(names["read_list"].__globals__, "LIST", old)
    with pytest.raises(
        SystemExit, match=r"'gone' is to replace a text that is 0 times in setup\.py"
    ):
        names["read_list"]()
