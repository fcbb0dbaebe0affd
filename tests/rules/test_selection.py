"""Each test is in a run of CI at some commit: `make test`, `make promises`, a slice of the rest."""

import re
from collections import Counter
from dataclasses import dataclass, field

import pytest
import selection
from conftest import ROOT


@dataclass(eq=False)
class Mark:
    kwargs: dict[str, bool] = field(default_factory=dict)


@dataclass(eq=False)
class Item:
    nodeid: str
    marks: dict[str, Mark]
    function: object
    fixturenames: tuple[str, ...] = ()

    def get_closest_marker(self, name: str) -> Mark | None:
        return self.marks.get(name)


def all_kinds() -> list[Item]:
    """Tests of all kinds, two cases of each."""
    kinds: list[dict[str, Mark]] = [
        {},
        {"long": Mark()},
        {"install": Mark()},
        {"job": Mark()},
        {"job": Mark(), "long": Mark()},
        {"job": Mark(), "shows": Mark()},
        {"job": Mark(), "shows": Mark({"later": True})},
        {"job": Mark(), "shows": Mark(), "long": Mark()},
    ]
    found = []
    for number in range(40):
        for kind, marks in enumerate(kinds):
            function = object()
            for case in "ab":
                found.append(Item(f"test_{number}_{kind}[{case}]", marks, function))
    return found


def ran(items: list[Item]) -> list[Item]:
    """What `make test` and `make promises` run of these: without what is long or installs."""
    chosen = [*selection.kept(items), *selection.kept(items, promises=True)]
    return [item for item in chosen if not {"long", "install"} & item.marks.keys()]


def test_every_test_is_in_exactly_one_run() -> None:
    items = all_kinds()
    runs = Counter(item.nodeid for item in ran(items))
    for number in range(1, selection.SLICES + 1):
        runs.update(item.nodeid for item in selection.part(items, number, "c0ffee"))
    assert runs == Counter(item.nodeid for item in items if "install" not in item.marks)


def test_the_slices_are_about_equal() -> None:
    items = all_kinds()
    every = len(selection.left_out(items)) / selection.SLICES
    for number in range(1, selection.SLICES + 1):
        assert 0.5 * every < len(selection.part(items, number, "c0ffee")) < 1.5 * every


def test_another_commit_has_another_slice_and_another_beginning() -> None:
    commits = [f"{number:040x}" for number in range(100)]
    slices = {selection.slice_by(commit) for commit in commits}
    assert slices == set(range(1, selection.SLICES + 1))
    assert selection.slice_by(commits[0]) == selection.slice_by(commits[0])
    items = all_kinds()
    parts = [[item.nodeid for item in selection.part(items, 1, commit)] for commit in commits[:9]]
    assert len({part[0] for part in parts}) > 4
    assert all(sorted(part) == sorted(parts[0]) for part in parts)


def test_of_a_promise_its_other_cases_are_left_out() -> None:
    items = [item for item in all_kinds() if item.nodeid.startswith("test_0_5")]
    assert [item.nodeid for item in selection.left_out(items)] == ["test_0_5[b]"]


def test_a_file_without_tests_has_no_part() -> None:
    assert selection.part([], 1, "c0ffee") == []


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "Makefile"])
def test_the_documents_name_what_ci_runs(document: str) -> None:
    targets = set(re.findall(r"\bmake ([a-z]+)", (ROOT / ".ci/run").read_text())) - {"setup"}
    assert {"test", "part"} <= targets
    text = (ROOT / document).read_text()
    for target in targets:
        assert f"`make {target}`" in text or f"\n{target}: " in text, target
    if document == "CONTRIBUTING.md":
        (said,) = re.findall(r"CI \(`.ci/run`\) runs (.*?)\.\s", text, re.DOTALL)
        assert set(re.findall(r"`make (\w+)`", said)) == targets
        unwrapped = " ".join(text.split())
        assert f"one of {selection.SLICES} slices" in unwrapped
        assert f"after {selection.PART_MINUTES} minutes" in unwrapped


def test_each_commit_draws_another_order_of_the_same_tests() -> None:
    items = all_kinds()
    commits = [f"{number:040x}" for number in range(9)]
    orders = [[item.nodeid for item in selection.drawn(items, commit)] for commit in commits]
    assert len({tuple(order[:3]) for order in orders}) == len(commits)
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert [item.nodeid for item in selection.drawn(items, commits[0])] == orders[0]
