"""What nodes make of the same checkpoint at the same time, whoever comes first."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from test_files import CALLS, checkpoint, manifest, origin, share

from hvd_ft.checkpoint import catalogue
from hvd_ft.checkpoint.manifest import Manifest
from hvd_ft.checkpointer import share as module
from hvd_ft.checkpointer.completion import complete
from hvd_ft.checkpointer.cuts import Cut
from hvd_ft.checkpointer.drain import settle
from hvd_ft.checkpointer.origin import Origin
from hvd_ft.errors import HvdFtError


def test_only_one_of_two_nodes_completes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a job each does, when it sees all shares."""
    for node in (0, 1):
        cut = share(origin(tmp_path, node, 2), 3)
    rename = os.rename

    def other_is_faster(*paths: Path) -> None:
        rename(*paths)
        monkeypatch.undo()
        rename(*paths)

    monkeypatch.setattr(os, "rename", other_is_faster)
    complete(origin(tmp_path, 1, 2), cut, [0, 1])
    assert manifest(tmp_path).missing == []


@pytest.mark.shows
@pytest.mark.parametrize("nodes", [[0, 1], [0, 1, 2]], ids=["all are there", "one is lost"])
def test_two_nodes_may_complete_at_any_moment_of_each_other(
    arena_dir: Path, monkeypatch: pytest.MonkeyPatch, nodes: list[int]
) -> None:
    """There is one checkpoint, the newest one, and no node has an error."""

    def world(folder: Path) -> list[Origin]:
        folder.mkdir()
        origins = [origin(folder, node, len(nodes)) for node in (0, 1)]
        for each in origins:
            for step in (3, 4):
                share(each, step)
        each.drained.mkdir()
        for node in (0, 1):  # both have said it, and continue from there
            (each.drained / f"{node}.json").write_text("[[0, 9], [0, 7]]")
        return origins

    cuts = [Cut(0, 9), Cut(0, 7)]
    for at in range(1000):
        first, second = world(arena_dir / str(at))
        with monkeypatch.context() as patch:
            done = _at_call(patch, at, lambda by=second: settle(by, cuts, 0.0))
            results = [settle(first, cuts, 0.0)]
        results += done
        assert Cut(0, 9) in results
        assert set(results) <= {Cut(0, 9), None}
        whole = [found for found in catalogue.find(first.directory) if found.manifest]
        assert [found.name for found in whole] == ["job1-loop0-step00000004"]
        if not done:
            break
        # Who ends last has tidied up.
        assert [path.name for path in first.directory.iterdir()] == [whole[0].path.name]
    assert at > 8


def test_two_nodes_may_both_be_in_the_middle_of_it(
    arena_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One had replaced the other's draft of the manifest: that one's end was not tidied up."""
    template = arena_dir / "template"
    template.mkdir()
    for node in (0, 1):
        cut = share(origin(template, node, 2), 3)
    times = 0
    for at in range(100):
        for until in range(100):
            folder = arena_dir / f"{at}-{until}"
            shutil.copytree(template, folder)
            acts = [partial(complete, origin(folder, node, 2), cut, [0, 1]) for node in (0, 1)]
            with monkeypatch.context() as patch:
                paused = _in_turn(patch, acts, at, until)
            assert manifest(folder).missing == []
            files = os.listdir(folder / "job1-loop0-step00000003")
            assert not [name for name in files if name[0] == "." or "share" in name], (at, until)
            times += 1
            if not paused[1]:
                break
        if not paused[0]:
            break
    assert times > 100


def test_the_newest_cut_that_all_nodes_have_is_completed(tmp_path: Path) -> None:
    origins = [origin(tmp_path, node, 2) for node in (0, 1)]
    for node, steps in ((0, (2, 3)), (1, (3, 4))):
        for step in steps:
            share(origins[node], step)
    origins[0].drained.mkdir()
    said = origins[0].drained / "0.json"
    said.write_text("[[0, 7], [0, 5]]")
    assert settle(origins[1], [Cut(0, 9), Cut(0, 7)], 0.0) == Cut(0, 7)
    assert manifest_of(tmp_path, 3).missing == []


def test_nodes_that_do_not_hear_of_each_other_complete_all_that_they_have(tmp_path: Path) -> None:
    """One may have the newer of two cuts only, another one the older."""
    for node in (0, 1):
        folder = tmp_path / str(node)
        folder.mkdir()
        mine = origin(folder, node, 2, [node])
        steps = [(3, 4), (4, 5)][node]
        cuts = [share(mine, step) for step in steps]
        assert settle(mine, cuts, 0.0) == cuts[-1]
        assert [each.manifest.step for each in catalogue.find(folder) if each.manifest] == [*steps]


def test_a_node_that_says_nothing_is_left_out(tmp_path: Path) -> None:
    share(origin(tmp_path, 0, 2), 3)
    for step in (3, 4):
        share(origin(tmp_path, 1, 2), step)
    assert settle(origin(tmp_path, 1, 2), [Cut(0, 9), Cut(0, 7)], 0.0) == Cut(0, 9)
    assert manifest_of(tmp_path, 4).missing == [0, 1]


DAMAGED = ["", "{}", "[[0]]", '[["0", 7]]', "[" * 100_000, "[[0, 7]", "\0"]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_node_whose_word_is_damaged_has_said_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    for node in (0, 1):
        share(origin(tmp_path, node, 2), 3)
    mine = origin(tmp_path, 1, 2)
    mine.drained.mkdir()
    (mine.drained / "0.json").write_text(text)
    assert settle(mine, [Cut(0, 7)], 0.0) == Cut(0, 7)
    assert manifest_of(tmp_path, 3).missing == [0, 1]
    [line] = capsys.readouterr().err.splitlines()
    assert "0.json is damaged (" in line
    assert line.endswith("what node 0 has written is left out")


@pytest.mark.parametrize("text", [*DAMAGED, '{"node": 0, "parts": 5}'])
def test_a_damaged_share_makes_no_checkpoint(tmp_path: Path, text: str) -> None:
    """It is an error that a writer handles: the next checkpoint is tried as usual."""
    for node in (0, 1):
        cut = share(origin(tmp_path, node, 2), 3)
    mine = origin(tmp_path, 0, 2)
    mine.share(cut, 1).write_text(text)
    with pytest.raises(HvdFtError, match=r"share-1\.json is damaged .*: check the disk"):
        complete(mine, cut, [0, 1])
    assert catalogue.find(tmp_path)[0].incomplete


def test_shares_of_another_cut_make_no_checkpoint(tmp_path: Path) -> None:
    mine = origin(tmp_path)
    cut, other = share(mine, 3), share(mine, 4)
    mine.share(cut, 0).write_bytes(mine.share(other, 0).read_bytes())
    with pytest.raises(HvdFtError, match="check the disk"):
        complete(mine, cut, [0])


@pytest.mark.parametrize("text", DAMAGED)
def test_with_damaged_fingerprints_each_node_writes_all(tmp_path: Path, text: str) -> None:
    cut = share(origin(tmp_path, 0, 2), 3)
    origin(tmp_path, 0, 2).prints(cut).write_text(text)
    share(origin(tmp_path, 1, 2), 3)
    complete(origin(tmp_path, 0, 2), cut, [0, 1])
    assert "loop0-node1.safetensors" in manifest(tmp_path).files


def test_one_node_waits_long_enough_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_wait(seconds: float) -> None:
        raise AssertionError

    monkeypatch.setattr(module.time, "sleep", no_wait)
    mine = origin(tmp_path, 1, 3)
    share(mine, 3)
    mine.drained.mkdir()
    (mine.drained / "0.json").write_text("[[0, 7]]")
    (mine.drained / "0.done").touch()
    checkpoint(tmp_path, 3, nodes=3)
    assert settle(mine, [Cut(0, 7)], time.monotonic() + 60.0) is None


def test_a_node_that_has_nothing_newer_is_not_lost(tmp_path: Path) -> None:
    """It says so; the others make nothing without it."""
    origins = [origin(tmp_path, node, 2) for node in (0, 1)]
    checkpoint(tmp_path, 3, nodes=2)
    share(origins[1], 4)
    origins[0].drained.mkdir()
    (origins[0].drained / "0.json").write_text("[[0, 7]]")
    assert settle(origins[1], [Cut(0, 9), Cut(0, 7)], 0.0) is None
    assert [found.state for found in catalogue.find(tmp_path) if found.manifest] == ["complete"]


def manifest_of(folder: Path, step: int) -> Manifest:
    found = catalogue.look_at(folder / f"job1-loop0-step{step:08d}").manifest
    assert found is not None
    return found


def _at_call(patch: pytest.MonkeyPatch, number: int, act: Callable[[], object]) -> list[object]:
    """Does something just before a call of the operating system; returns what it returned."""
    done: list[object] = []
    left = [number]

    def interrupted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **named: object) -> object:
            left[0] -= 1
            if left[0] == -1:
                done.append(act())
            return real(*args, **named)

        return call

    for name in (*CALLS, "stat"):
        patch.setattr(os, name, interrupted(getattr(os, name)))
    return done


def _in_turn(
    patch: pytest.MonkeyPatch, acts: Sequence[Callable[[], object]], first: int, second: int
) -> list[bool]:
    """Does two things in threads; returns which of them came to their pause.

    The first one runs up to its call number `first` of the operating system, the second one up to
    its call number `second`; then the first one to its end, and the second one.
    """
    left, paused = [first, second], [False, False]
    may = [threading.Event(), threading.Event()]
    goes_on = [threading.Event(), threading.Event()]
    threads: dict[int, int] = {}
    errors: list[BaseException] = []

    def stopping(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **named: object) -> object:
            me = threads.get(threading.get_ident())
            if me is not None:
                left[me] -= 1
                if left[me] == -1:
                    paused[me] = True
                    (may[1] if me == 0 else goes_on[0]).set()
                    goes_on[me].wait()
            return real(*args, **named)

        return call

    def run(me: int) -> None:
        threads[threading.get_ident()] = me
        may[me].wait()
        try:
            acts[me]()
        except BaseException as error:
            errors.append(error)
        may[1].set()
        goes_on[1 - me].set()

    for name in (*CALLS, "stat"):
        patch.setattr(os, name, stopping(getattr(os, name)))
    both = [threading.Thread(target=run, args=(me,)) for me in (0, 1)]
    for thread in both:
        thread.start()
    may[0].set()
    for thread in both:
        thread.join()
    if errors:
        raise errors[0]
    return paused


@pytest.mark.parametrize("at", range(4))
def test_two_nodes_delete_leftovers_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Each finds things gone that it was about to delete, and both come to the end."""
    for number in range(2):
        partial = tmp_path / f".job1-loop0-step0000000{number}.partial"
        partial.mkdir()
        for name in ("a", "b"):
            (partial / name).touch()
    gone: list[str] = []

    def with_another(name: str) -> None:
        real = getattr(os, name)

        def both(path: str, **where: int | None) -> None:
            gone.append(path)
            if len(gone) - 1 == at:
                real(path, **where)
            real(path, **where)

        monkeypatch.setattr(os, name, both)

    with_another("unlink")
    with_another("rmdir")
    catalogue.remove_leftovers(tmp_path, ["job1"])
    assert len(gone) == 6
    assert list(tmp_path.iterdir()) == []
