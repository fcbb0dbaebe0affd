"""The words of scenarios: reads those of the job, and writes those of the machine's actions."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from itertools import groupby
from typing import Any

from hvd_ft.job.lifeline_messages import Note
from hvd_ft.job.settings import Settings
from hvd_ft.launcher.machine import actions as out
from hvd_ft.launcher.machine.job_facts import JobFacts
from hvd_ft.members.hosts import Host
from hvd_ft.members.membership import Membership


def read_options(words: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Splits words into plain ones and `key=value`."""
    plain, options = [], {}
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            options[key] = value
        else:
            plain.append(word)
    return plain, options


def read_hosts(text: str) -> tuple[Host, ...]:
    """Reads hosts, such as `n0:2,n1:2`."""
    pairs = (each.split(":") for each in text.split(",") if each)
    return tuple(Host(name, int(slots)) for name, slots in pairs)


def read_ranks(text: str) -> list[int]:
    """Reads ranks, such as `0,2-3`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def read_facts(text: str) -> tuple[JobFacts, bool]:
    """Reads what follows `job`; and whether questions are shown."""
    plain, given = read_options(text.split())
    hosts = read_hosts(given.get("hosts", ""))
    size = int(given.get("size", sum(host.slots for host in hosts)))
    first = Membership.first(hosts or [Host("localhost", size)], size)
    facts = JobFacts(
        id="job1",
        members=Membership.parse(given["members"]) if "members" in given else first,
        hosts=hosts,
        spare_hosts=read_hosts(given.get("spares", "")),
        generation=int(given.get("generation", "0")),
        resume="resume" in plain,
        led="led" in plain,
        may_shrink="may_shrink" in plain,
        least_in_place=int(given["least"]) if "least" in given else None,
        warm="warm" in plain,
        bootstrap=given.get("bootstrap", "ssh"),
        records="records" in plain,
    )
    known = {"hosts", "size", "members", "spares", "generation", "least", "bootstrap"}
    assert set(given) <= known, given
    assert {*plain} <= {"resume", "led", "may_shrink", "warm", "questions", "records"}, plain
    return facts, "questions" in plain


def read_settings(text: str) -> Settings:
    """Reads what follows `settings`."""
    _, given = read_options(text.split())
    values: dict[str, Any] = {}
    for each in fields(Settings):
        if each.name in given:
            value = given.pop(each.name)
            values[each.name] = float(value) if each.name.endswith("_seconds") else value
            if isinstance(each.default, int):
                values[each.name] = int(value)
    assert not given, given
    return Settings(**values)


def alike(action: out.Action) -> Any:
    """Returns a key: neighbours of the same one stand on one line, unless it is None."""
    if isinstance(action, out.Send):
        return ("send", action.message)
    return ("end line", None) if isinstance(action, out.EndLine) else None


def in_words(run: list[out.Action], names: Mapping[int, str]) -> list[str]:
    """Returns the lines for actions that are alike.

    Args:
        run: of them.
        names: of life-lines.
    """
    first = run[0]
    if not isinstance(first, out.Send | out.EndLine):
        return [_text(action) for action in run]
    ends = _spans([names[each.line] for each in run if isinstance(each, out.Send | out.EndLine)])
    if isinstance(first, out.EndLine):
        return [f"end line {ends}"]
    message = first.message
    words = [getattr(message, each) for each in message.__struct_fields__]
    if isinstance(message, Note) and "time_ns" in message.note:
        words = [{**message.note, "time_ns": 0}]
    return [f"send {ends} {type(message).__name__}({', '.join(map(str, words))})"]


def _spans(names: list[str]) -> str:
    """Returns the names of lines, compact: `0-2,3'`."""
    found = []
    for _, group in groupby(
        enumerate(names), lambda pair: (pair[1].lstrip("0123456789"), _rank(pair[1]) - pair[0])
    ):
        run = [name for _, name in group]
        found.append(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ",".join(found)


def _rank(name: str) -> int:
    return int(name.rstrip("'"))


def _text(action: out.Action) -> str:
    text = type(action).__name__
    match action:
        case out.Say(text):
            text = f"say {text}".replace("\n", " / ")
        case out.Publish(generation, members):
            text = f"publish {generation} on {members}"
        case out.StartAgents(generation, members, lease):
            until = "" if lease is None else f" lease {lease:g}"
            text = f"start agents {generation} on {members}{until}"
        case out.KillMpirun():
            text = "kill mpirun"
        case out.ContinueMpirun():
            text = "continue mpirun"
        case out.Probe(host):
            text = f"probe {host}"
        case out.WriteFlight(reasons, parts, missing):
            why = ", ".join(f"{kind} ({text})" for kind, text in reasons)
            lacks = f" without {', '.join(str(rank) for rank, *_ in missing)}" if missing else ""
            text = f"write flight record of {', '.join(map(str, parts))}{lacks}: {why}"
        case out.AnswerPage(number, problem):
            text = f"answer page {number}: {problem or 'done'}"
        case out.HostsLeft(names, lost):
            text = f"hosts {'lost' if lost else 'given up'}: {','.join(names)}"
        case out.HostsJoined(hosts):
            text = f"hosts joined: {','.join(map(str, hosts))}"
        case out.End(code, files_stay, lost, resized):
            more = ["files stay"] * files_stay + [f"lost {','.join(lost)}"] * bool(lost)
            text = f"end {code}" + "".join(f", {each}" for each in more + ["resized"] * resized)
    return text
