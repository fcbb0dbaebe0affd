"""Drills (`--inject`): a process of the job dies at a point of a worker's life, or its memory goes
wrong. Pure.

Texts in, texts out.
"""

import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hvd_ft.errors import HvdFtError
from hvd_ft.native.types import Point
from hvd_ft.system.spans import span_numbers

VARIABLE = "HOROVOD_FT_INJECT"  # in the environment of a worker that has a drill
_OTHERS = ("agent", "shim", "mpirun")  # processes that can die instead of a worker
_OLD_KEYS = {"nursery": "shim"}  # names of earlier versions
_KEYS = (
    *("rank", *_OTHERS, "leave", "incarnation", "point", "op", "step"),
    *("signal", "exit", "raise", "flip", "slow"),
)
_WORDS = ("raise", "mpirun")  # have no value
# What a worker signals to its shim, which then kills its agent, stops it, or kills mpirun.
AGENT_DIES, MPIRUN_DIES, AGENT_STOPS = signal.SIGUSR1, signal.SIGUSR2, signal.SIGRTMIN + 6
_POINTS = {point.name.lower(): point for point in Point}
# Signals that end a process, or stop it.
_SIGNALS = {
    name: signal.Signals[f"SIG{name}"]
    for name in ("ABRT", "BUS", "FPE", "HUP", "ILL", "INT", "KILL", "QUIT", "SEGV", "STOP", "TERM")
}
# Points in Python code, where an exception can be raised that ends the script.
_RAISING = (Point.START, Point.ATTACH, Point.STEP, Point.SNAPSHOT_WRITE)
_UNATTACHED = (Point.START, Point.ATTACH)  # no op and no step is known there
_MAX = (1 << 31) - 1
_MOST_PERCENT = 100_00  # of the usual time of a step


@dataclass(frozen=True)
class Drill:
    """One death of a worker, or, at a point of its life, of its agent, its shim or mpirun.

    Or a bit of one of the worker's variables flips, and the worker continues.

    Attributes:
        text: as the user gave it.
        rank: of the worker.
        incarnation: of the worker.
        point: the point where it strikes, …
        op: … during this op; None: any, …
        step: … after so many steps of the loop; None: any.
        way: `s`, `x` or `r`: by a signal, by os._exit, by an exception; `p`: by a signal to its
            shim, which dies of it or handles it; `f`: a bit flips, by worker/flip_drill.py; `l`:
            ranks are asked to leave the job, by worker/rosters.py; `w`: the worker computes more
            slowly from there on, by worker/slow_drill.py.
        value: the signal's number, the exit code, or the percentage of the usual time.
    """

    text: str
    rank: int
    incarnation: int
    point: Point
    op: int | None
    step: int | None
    way: str
    value: int


def parse(text: str) -> Drill:
    """Reads what the user gave to `--inject`.

    Args:
        text: such as `rank=2,step=30,signal=KILL`.

    Raises:
        HvdFtError: it is not a drill; the message lists what is allowed.
    """
    given = _pairs(text)
    way, value = _way(text, given)
    for key in ("agent", "shim"):
        if key in given:
            given["rank"] = given[key]
    if "mpirun" in given:
        given.setdefault("rank", "0")
    if "leave" in given:
        _check_leave(text, given)
        given["rank"] = "0"  # which asks for it
    if "rank" not in given:
        raise _wrong(text, "rank= is missing; give the rank of the worker that is to die")
    numbers = {key: _number(text, key, given) for key in ("rank", "incarnation", "op", "step")}
    point = _point(text, given)
    _check_place(text, numbers, point, way)
    return Drill(
        text=text,
        rank=numbers["rank"] or 0,
        incarnation=numbers["incarnation"] or 0,
        point=point,
        op=numbers["op"],
        step=numbers["step"],
        way=way,
        value=value,
    )


def renamed(text: str) -> str | None:
    """Returns a line about a renamed word in a drill; None if there is none."""
    for word in text.split(","):
        key = word.partition("=")[0]
        if key in _OLD_KEYS:
            return f"--inject {text}: {key}= is called {_OLD_KEYS[key]}= now"
    return None


def check_ranks(drills: Iterable[Drill], size: int) -> None:
    """Checks that the drills' workers exist in a job of `size` ranks.

    Raises:
        HvdFtError: one does not.
    """
    for drill in drills:
        highest = max([drill.rank, *(leaving(drill) or ())])
        if highest >= size:
            raise _wrong(drill.text, f"the job's ranks are 0 to {size - 1}")


def leaving(drill: Drill) -> range | None:
    """Returns the ranks that a drill asks to leave the job; None if it is another one."""
    return span_numbers(_pairs(drill.text)["leave"]) if drill.way == "l" else None


def drill_environment(drills: Sequence[Drill], rank: int, incarnation: int) -> dict[str, str]:
    """Returns the environment variables for one worker's drills."""
    entries = [
        f"{drill.point}:{_or_any(drill.op)}:{_or_any(drill.step)}"
        f":{drill.way}:{drill.value}:{drill.text}"
        for drill in drills
        if (drill.rank, drill.incarnation) == (rank, incarnation)
    ]
    return {VARIABLE: ";".join(entries)} if entries else {}


def _or_any(number: int | None) -> int:
    return -1 if number is None else number


def _wrong(text: str, reason: str) -> HvdFtError:
    return HvdFtError(f"--inject {text!r}: {reason}")


def _pairs(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in text.split(","):
        key, equals, value = word.partition("=")
        key = _OLD_KEYS.get(key, key)
        if key not in _KEYS or bool(equals) == (key in _WORDS):
            raise _wrong(
                text,
                f"{word!r} is not known; give rank=R, agent=R, shim=R or mpirun, one of step=N, "
                "op=N and point=NAME, and if you like, with rank=, incarnation=I and one of "
                "signal=NAME, exit=CODE, raise, flip=VARIABLE and slow=FACTOR; or leave=R-R and "
                "step=N",
            )
        if key in pairs:
            raise _wrong(text, f"{key} is there twice; give --inject once for each drill")
        pairs[key] = value
    return pairs


def _check_leave(text: str, given: dict[str, str]) -> None:
    if set(given) != {"leave", "step"}:
        raise _wrong(text, "leave= goes with step=N alone, after which rank 0 asks for it")
    try:
        ranks = span_numbers(given["leave"])
    except ValueError:
        raise _wrong(
            text, f"leave={given['leave']} is neither a rank nor a span like 2-3"
        ) from None
    if not ranks or ranks[0] == 0:
        raise _wrong(text, "rank 0 cannot leave, as it coordinates the others; give R-S from 1 up")


def _number(text: str, key: str, given: dict[str, str]) -> int | None:
    if key not in given:
        return None
    value = given[key]
    if not (value.isascii() and value.isdecimal()) or int(value) > _MAX:
        raise _wrong(text, f"{key}={value} is not a whole number from 0 to {_MAX}")
    return int(value)


def _point(text: str, given: dict[str, str]) -> Point:
    if "point" in given:
        if given["point"] not in _POINTS:
            raise _wrong(text, f"no point {given['point']!r}; there are {', '.join(_POINTS)}")
        return _POINTS[given["point"]]
    if "slow" in given and "op" not in given:
        return Point.STEP  # from the first one on, without step=
    if ("op" in given) == ("step" in given):
        raise _wrong(text, "give one of step=N, op=N and point=NAME as the place")
    return Point.STEP if "step" in given else Point.CONTRIBUTE


def _way(text: str, given: dict[str, str]) -> tuple[str, int]:
    ways = [key for key in ("signal", "exit", "raise", "flip", "slow") if key in given]
    if "leave" in given:
        return "l", 0
    if not given.keys().isdisjoint(_OTHERS):
        return "p", _signal_to_shim(text, given)
    if len(ways) > 1:
        raise _wrong(text, f"{' and '.join(ways)} are two ways to strike; give only one")
    if ways == ["flip"]:
        if not given["flip"] or ";" in given["flip"]:
            raise _wrong(text, "flip= is the name of a variable, or a part of it without ; and ,")
        return "f", 0
    if ways == ["slow"]:
        return "w", _percent(text, given["slow"])
    if ways == ["raise"]:
        return "r", 0
    return ("x", _exit_code(text, given)) if ways == ["exit"] else ("s", _signal(text, given))


def _exit_code(text: str, given: dict[str, str]) -> int:
    code = _number(text, "exit", given)
    if code is None or code > 255:
        raise _wrong(text, f"exit={given['exit']} is not an exit code from 0 to 255")
    return code


def _signal(text: str, given: dict[str, str]) -> int:
    name = given.get("signal", "KILL").removeprefix("SIG")
    if name not in _SIGNALS:
        raise _wrong(text, f"no signal {given['signal']!r}; there are {', '.join(_SIGNALS)}")
    return _SIGNALS[name]


def _percent(text: str, factor: str) -> int:
    try:
        percent = round(float(factor) * 100)
    except (ValueError, OverflowError):
        percent = 0
    if not 100 < percent <= _MOST_PERCENT:
        raise _wrong(
            text,
            f"slow={factor} is not how many times as long a step takes; give a number above 1, and "
            f"at most {_MOST_PERCENT // 100}, such as 1.3",
        )
    return percent


def _signal_to_shim(text: str, given: dict[str, str]) -> int:
    """Returns the way in which another process than the worker dies or stops."""
    (other, *more) = [key for key in _OTHERS if key in given]
    strange = {"incarnation", "exit", "raise", "flip", "slow"}
    if other != "mpirun":
        strange.add("rank")
    name = given.get("signal", "KILL").removeprefix("SIG")
    by_name: dict[str, dict[str, int]] = {
        "agent": {"KILL": AGENT_DIES, "STOP": AGENT_STOPS},
        "shim": {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP},
        "mpirun": {"KILL": MPIRUN_DIES},
    }
    if more or strange & given.keys() or name not in by_name[other]:
        raise _wrong(
            text,
            "an agent and a shim die of signal=KILL, or are stopped by signal=STOP; mpirun is "
            "killed; give one of them, and a place besides",
        )
    return by_name[other][name]


def _check_place(text: str, numbers: dict[str, int | None], point: Point, way: str) -> None:
    name = point.name.lower()
    if way == "r" and point not in _RAISING:
        places = ", ".join(place.name.lower() for place in _RAISING)
        raise _wrong(text, f"there is no Python to raise at {name}; raise goes with {places}")
    if way == "f" and (
        numbers["step"] is None or point is not Point.STEP or numbers["op"] is not None
    ):
        raise _wrong(text, "a bit flips between two steps; give step=N as the place of flip=")
    if way == "w" and (point is not Point.STEP or numbers["op"] is not None):
        raise _wrong(text, "a rank is slow in whole steps; give step=N, or no place, beside slow=")
    if point in _UNATTACHED and (numbers["op"] is not None or numbers["step"] is not None):
        raise _wrong(text, f"at {name} no op and no step is known; leave op= and step= out")
    coordinates = point in (Point.PROPOSE, Point.PROPOSED)
    if coordinates and numbers["rank"] != 0:
        raise _wrong(text, f"only rank 0 passes {name}: it is the coordinator")
    if point is Point.ANNOUNCE and numbers["rank"] == 0:
        raise _wrong(text, "rank 0 announces nothing: it is the coordinator; give another rank")
