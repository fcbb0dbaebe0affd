"""What writers leave on the disk, whenever they are killed, and what is stored once."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from forked import exit_code, forked

from hvd_ft.checkpoint import catalogue
from hvd_ft.checkpoint.contents import RankArrays
from hvd_ft.checkpoint.manifest import MANIFEST, Manifest, Messages
from hvd_ft.checkpoint.rules import to_delete
from hvd_ft.checkpointer.capture import Captured
from hvd_ft.checkpointer.completion import complete
from hvd_ft.checkpointer.cuts import Cut
from hvd_ft.checkpointer.origin import Origin, draft_of
from hvd_ft.checkpointer.share import AbandonedError, Began, write_share
from hvd_ft.errors import HvdFtError
from hvd_ft.native.checkpointer import Place
from hvd_ft.worker.shared_contents import Contents, freeze, thawed

# Everything that changes what is on a disk.
CALLS = ("open", "write", "fsync", "mkdir", "rename", "replace", "unlink", "rmdir", "close")
KILLED = 77


def origin(folder: Path, node: int = 0, nodes: int = 1, group: list[int] | None = None) -> Origin:
    place = Place(2 * nodes, nodes, node, 2 * node, 2)
    return Origin(folder, "job1", "run1", 5, place, group or list(range(nodes)))


def snapshot(rank: int, step: int, *, equal: float = 1.0) -> Captured:
    """One with a large array that is equal on all ranks, and a small one of the rank's own."""
    arrays = {
        "0:equal": np.full((50, 20), step + equal, np.float32),
        f"1:own_{rank}": np.array([rank, step]),
    }
    kept, values = freeze(arrays, {"step": step, "rank": rank})
    return Captured(10 * step, Contents(kept, values.data, frozenset()))


def share(of: Origin, step: int, *, equal: float = 1.0, messages: int = 0) -> Cut:
    cut = Cut(0, 2 * step + 1)
    ranks = {rank: snapshot(rank, step, equal=equal) for rank in of.place.ranks}
    sent = [Messages(0, 1, messages)] if of.place.node == 0 else []
    write_share(
        of,
        cut,
        {cut: ranks},
        (sent, []),
        range(of.place.size),
        began=Began.now(),
        await_seconds=0.0,
    )
    return cut


def checkpoint(folder: Path, step: int, nodes: int = 1) -> None:
    origins = [origin(folder, node, nodes) for node in range(nodes)]
    for each in origins:
        cut = share(each, step)
    complete(origins[0], cut, range(nodes))


def manifest(folder: Path) -> Manifest:
    [found] = catalogue.find(folder)
    assert found.manifest is not None
    assert catalogue.damage(found.path, found.manifest.files.items()) == []
    return found.manifest


def test_what_is_equal_on_all_ranks_is_stored_once(tmp_path: Path) -> None:
    checkpoint(tmp_path, 3, nodes=2)
    found = manifest(tmp_path)
    assert (found.step, found.loop, found.cut, found.missing) == (3, 0, 7, [])
    assert sorted(found.files) == [
        "loop0-node0.safetensors",
        *(f"loop0-rank{rank}.safetensors" for rank in range(4)),
    ]
    path = catalogue.find(tmp_path)[0].path
    assert sorted(each.name for each in path.iterdir()) == [*sorted(found.files), "manifest.json"]
    for rank in range(4):
        part = found.part(rank, 0)
        assert part is not None
        arrays = RankArrays(path, part)
        assert list(arrays) == ["0:equal", f"1:own_{rank}"]
        assert arrays["0:equal"].tolist() == np.full((50, 20), 4.0).tolist()
        assert arrays[f"1:own_{rank}"].tolist() == [rank, 3]
        assert thawed(arrays.frozen_values) == {"step": 3, "rank": rank}


def test_what_differs_between_nodes_is_stored_once_a_node(tmp_path: Path) -> None:
    share(origin(tmp_path, 0, 2), 3)
    cut = share(origin(tmp_path, 1, 2), 3, equal=2.0)
    complete(origin(tmp_path, 1, 2), cut, [0, 1])
    found = manifest(tmp_path)
    part = found.part(2, 0)
    assert part is not None
    arrays = RankArrays(catalogue.find(tmp_path)[0].path, part)
    assert arrays["0:equal"][0, 0] == 5.0
    assert "loop0-node1.safetensors" in found.files


def test_hosts_without_a_common_directory(tmp_path: Path) -> None:
    for node in (0, 1):
        folder = tmp_path / str(node)
        folder.mkdir()
        mine = origin(folder, node, 2, [node])
        complete(mine, share(mine, 3), [node])
        found = manifest(folder)
        assert found.apart
        assert [part.rank for part in found.parts] == [2 * node, 2 * node + 1]
        assert catalogue.find(folder)[0].state == f"the share of node {node} of 2"


def test_messages_under_way_make_no_checkpoint(tmp_path: Path) -> None:
    cut = share(origin(tmp_path), 3, messages=2)
    with pytest.raises(HvdFtError, match=r"messages from rank 0 to rank 1 .* at step 3"):
        complete(origin(tmp_path), cut, [0])
    assert catalogue.find(tmp_path)[0].incomplete


def test_a_lost_node_is_named(tmp_path: Path) -> None:
    cut = share(origin(tmp_path, 0, 2), 3)
    complete(origin(tmp_path, 0, 2), cut, [0])
    assert manifest(tmp_path).missing == [2, 3]
    assert catalogue.find(tmp_path)[0].state == "without ranks 2, 3"


def test_a_share_that_nobody_needs_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = Path.mkdir

    def removed(path: Path, *args: object, **named: object) -> None:
        mkdir(path, 0o700)
        catalogue.remove_leftovers(tmp_path, ["job1"])

    monkeypatch.setattr(Path, "mkdir", removed)
    with pytest.raises(AbandonedError):
        share(origin(tmp_path), 3)


def test_a_share_is_there_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another node completes the checkpoint as soon as it sees the share."""
    fsync, mine, seen = os.fsync, origin(tmp_path), []

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        seen.append(mine.shares(Cut(0, 7)))

    monkeypatch.setattr(os, "fsync", watched)
    share(mine, 3)
    assert len(seen) > 3
    assert not any(seen)
    assert mine.shares(Cut(0, 7)) == [0]


def test_what_is_said_to_be_there_is_on_the_disk_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that loses its power has either no checkpoint of that name or all of it."""
    done: list[tuple[str, str]] = []
    fsync = os.fsync

    def synced(descriptor: int) -> None:
        done.append(("synced", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def noted(real: Callable[..., None]) -> Callable[..., None]:
        def call(source: object, dest: object) -> None:
            done.append(("named", str(dest)))
            real(source, dest)

        return call

    monkeypatch.setattr(os, "fsync", synced)
    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, noted(getattr(os, name)))
    checkpoint(tmp_path, 3)
    mine, cut = origin(tmp_path), Cut(0, 7)
    partial = mine.partial(cut)

    def at(what: str, path: Path) -> int:
        return done.index((what, str(path)))

    for name in manifest(tmp_path).files:
        assert at("synced", partial / name) < at("synced", partial)
    share_named, whole = at("named", mine.share(cut, 0)), at("named", mine.path(cut))
    manifest_named = at("named", partial / MANIFEST)
    assert at("synced", partial) < share_named
    assert at("synced", draft_of(mine.share(cut, 0))) < share_named
    assert at("synced", draft_of(partial / MANIFEST)) < manifest_named
    assert ("synced", str(partial)) in done[manifest_named:whole]
    assert ("synced", str(tmp_path)) in done[whole:]


def test_leftovers_of_other_jobs_stay(tmp_path: Path) -> None:
    for name in (".job1-loop0-step1.partial", ".job1-loop0-step2.removed", ".job2-loop0-x.partial"):
        (tmp_path / name).mkdir()
    catalogue.remove_leftovers(tmp_path, ["job1"])
    assert [path.name for path in tmp_path.iterdir()] == [".job2-loop0-x.partial"]


def in_child(act: Callable[[], object], kill_at: int) -> bool:
    """Runs in another process that dies at a call; returns whether it lived to the end."""

    def dying() -> None:
        _die_at(kill_at)
        act()

    code = exit_code(forked(dying))
    assert code in (0, KILLED)
    return code == 0


def _die_at(number: int) -> None:
    left = [number]

    def dying(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **named: object) -> object:
            if left[0] == 0:
                os._exit(KILLED)
            left[0] -= 1
            return real(*args, **named)

        return call

    for name in CALLS:
        setattr(os, name, dying(getattr(os, name)))


def replace_all_but_the_newest(folder: Path, step: int) -> None:
    checkpoint(folder, step, nodes=2)
    entries = [catalogue.entry_of(c, c.manifest) for c in catalogue.find(folder) if c.manifest]
    for name in to_delete(entries, "run1", 1, None):
        catalogue.remove(folder, name)


def test_a_writer_may_be_killed_at_any_call(arena_dir: Path) -> None:
    """What looks complete is complete, and there is always one; the next writer goes on."""
    for kill_at in range(1000):
        folder = arena_dir / str(kill_at)
        folder.mkdir()
        checkpoint(folder, 3, nodes=2)
        lived = in_child(lambda to=folder: replace_all_but_the_newest(to, 4), kill_at)
        whole = [found for found in catalogue.find(folder) if found.manifest is not None]
        assert whole
        for found in whole:
            assert found.state == "complete"
            assert found.manifest is not None
            assert catalogue.damage(found.path, found.manifest.files.items()) == []
        if lived:
            break
        catalogue.remove_leftovers(folder, ["job1"])
        replace_all_but_the_newest(folder, 5)
        assert [path.name for path in folder.iterdir()] == ["job1-loop0-step00000005"]
    assert lived
    assert kill_at > 40, "so many calls there are"
    assert manifest(folder).step == 4


def test_a_writer_that_takes_the_place_of_killed_ones_writes_its_share_anew(
    arena_dir: Path,
) -> None:
    """Two die, at any moment of it; the other node's share is as it was."""
    for kill_at in range(100):
        folder = arena_dir / str(kill_at)
        folder.mkdir()
        mine, other = origin(folder, 0, 2), origin(folder, 1, 2)
        share(other, 3)
        lived = in_child(lambda mine=mine: share(mine, 3), kill_at)
        in_child(lambda mine=mine: share(mine, 3), kill_at + 1)
        cut = share(mine, 3)
        complete(mine, cut, [0, 1])
        assert manifest(folder).missing == []
        files = os.listdir(mine.path(cut))
        assert sorted(files) == [*sorted(manifest(folder).files), MANIFEST]
        if lived:
            break
    assert lived
    assert kill_at > 15, "so many calls there are"
