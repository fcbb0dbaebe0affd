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


def test_one_whose_tests_do_not_end_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test has to find it by itself: who runs the tests gives them no limit of this kind."""
    names = runpy.run_path(str(SCRIPT))
    monkeypatch.setitem(names["try_out"].__globals__, "LIMIT_SECONDS", 0.0)
    (tmp_path / "file.py").write_text("old")
    mutant = names["Mutant"]("endless", "file.py", "old", "new", ("tests/none.py",))
    outcome, _ = names["try_out"](mutant, tmp_path)
    assert outcome == "NO END in 0 s"
    assert (tmp_path / "file.py").read_text() == "old"
