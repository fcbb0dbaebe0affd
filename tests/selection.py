"""Which tests a run takes: `--quick`, `--short`, `--promises`, or `--part` of the rest. Pure.

What no run covers rots. `make test` and `make promises` leave out most of what starts jobs, and
what is marked `long`; a part is a slice of that, another one for each commit. The pairs of faults
are a run of their own, of which CI takes for some minutes what the commit draws (`--minutes`).
"""

import hashlib
from collections.abc import Sequence
from typing import Any

SLICES = 16  # so many that one of them takes about PART_MINUTES on 2 quiet cores
PART_MINUTES = 8  # after which no test of a part begins, unless MINUTES= says otherwise
_APART = ("tests/pairs/", "tests/launcher/test_job_model.py")  # `make pairs`
# Who asks for one of these starts a job, or whole programs.
_OF_JOBS = {"run_hvdft", "cluster", "nodes", "slow_cluster", "patched_estimator", "wheel"}


def starts_jobs(item: Any) -> bool:
    """Returns whether a test starts jobs, or takes as long."""
    asked = set(getattr(item, "fixturenames", ()))
    return bool(_OF_JOBS & asked) or item.get_closest_marker("job") is not None


def kept(items: Sequence[Any], *, quick: bool = False, promises: bool = False) -> list[Any]:
    """Returns the tests of `--short`, of `--quick`, or of `--promises`, in their order.

    Args:
        items: all tests.
        quick: none that starts a job.
        promises: of those that start jobs only what shows a promise later; no others.
    """
    shown: set[object] = set()
    found: list[Any] = []
    for item in items:
        function = getattr(item, "function", item)
        shows = item.get_closest_marker("shows")
        if not starts_jobs(item):
            if not promises:
                found.append(item)
        elif shows and not quick and shows.kwargs.get("later", False) is promises:
            if function not in shown:  # its first case
                found.append(item)
            shown.add(function)
    return found


def left_out(items: Sequence[Any]) -> list[Any]:
    """Returns the tests that neither `make test` nor `make promises` runs, nor `make wheel`."""
    run = {id(item) for promises in (False, True) for item in kept(items, promises=promises)}
    return [
        item
        for item in items
        if item.get_closest_marker("install") is None
        and not str(item.nodeid).startswith(_APART)
        and (id(item) not in run or item.get_closest_marker("long") is not None)
    ]


def slice_by(commit: str) -> int:
    """Returns the number of a commit's slice, from 1."""
    return _number(commit) % SLICES + 1


def part(items: Sequence[Any], number: int, commit: str) -> list[Any]:
    """Returns a slice of what is left out.

    Args:
        items: all tests.
        number: of the slice, from 1.
        commit: where the slice begins: what comes last is not begun if the time is over.
    """
    found = [item for item in left_out(items) if _number(item.nodeid) % SLICES + 1 == number]
    begin = _number(f"begin {commit}") % max(len(found), 1)
    return found[begin:] + found[:begin]


def drawn(items: Sequence[Any], commit: str) -> list[Any]:
    """Returns tests in an order that each commit draws: a run may end before it has had all."""
    return sorted(items, key=lambda item: _number(f"{commit} {item.nodeid}"))


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
