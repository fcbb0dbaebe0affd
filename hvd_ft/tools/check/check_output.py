"""How `hvdft check` shows what it has found: for a terminal of 100 columns, and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from rich.table import Table

from hvd_ft import __version__
from hvd_ft.doctor.between_rules import Seen, link_rates
from hvd_ft.doctor.facts import HostFacts, Network
from hvd_ft.doctor.finding import ERROR, WARNING, Finding
from hvd_ft.system.byte_size import in_words

SCHEMA = 1  # of the JSON: changes when a name or a meaning does
COLUMNS = 100
EXIT_WARNINGS, EXIT_ERRORS = 1, 2
_NAMED = 3  # hosts of one finding


def exit_code(findings: Sequence[Finding]) -> int:
    """Returns the command's: 2 with an error, 1 with a warning, otherwise 0."""
    found = {finding.severity for finding in findings}
    return EXIT_ERRORS if ERROR in found else EXIT_WARNINGS if WARNING in found else 0


def block(finding: Finding) -> str:
    """Returns a finding as lines: what there is, why it matters, what to do."""
    named, more = finding.hosts[:_NAMED], len(finding.hosts) - _NAMED
    others = f" and {more} others" if more > 0 else ""
    where = f"{', '.join(named)}{others}: " if named else ""
    parts = [(f"{finding.severity}: ", f"{where}{finding.what}")]
    parts += [("  why: ", finding.why)] if finding.why else []
    parts += [("  do:  ", finding.remedy)] if finding.remedy else []
    return "\n".join(_wrapped(first, text) for first, text in parts)


def _wrapped(first: str, text: str) -> str:
    return textwrap.fill(
        f"{first}{text}",
        COLUMNS,
        subsequent_indent=" " * (len(first) if first.startswith(" ") else 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def verdict(findings: Sequence[Finding]) -> str:
    """Returns the last line; "" if there are errors, which speak for themselves."""
    if exit_code(findings) == EXIT_ERRORS:
        return ""
    count = sum(finding.severity == WARNING for finding in findings)
    return "everything is there" + (f"; {count} warning{'s' * (count > 1)}" if count else "")


def host_line(facts: HostFacts) -> str:
    """Returns what this host leaves a job."""
    limits = facts.limits
    cpus = f"{limits.cpus} CPU{'s' * (limits.cpus > 1)}"
    if limits.cpu_quota is not None:
        cpus += f" ({limits.cpu_quota:.3g} of time)"
    files = "any number of" if limits.open_files is None else f"{limits.open_files}"
    return (
        f"host: {cpus}, {in_words(_memory(facts))} of memory, {in_words(limits.arena)} in "
        f"{limits.arena_dir}, {files} open files"
    )


def network_line(network: Network) -> str:
    """Returns what MPI uses between hosts, and what else there is."""
    name = network.provider or "as Intel MPI chooses"
    devices = ", ".join(network.devices) or "none"
    return f"network: provider {name} ({network.why}), InfiniBand: {devices}"


def hosts_table(seen: Seen) -> Table:
    """Puts the hosts into a table, one a row."""
    table = Table(box=None, header_style="", pad_edge=False)
    table.add_column("host", max_width=20, overflow="ellipsis", no_wrap=True)
    measured = ("GFLOP/s", "copy GB/s", "link MB/s", "clock")
    for name in ("ranks", "CPUs", "memory", "arena", *measured):
        table.add_column(name, justify="right", no_wrap=True)
    rates = link_rates(seen.links)
    for host, facts in seen.facts.items():
        speed, clock = seen.speeds.get(host), seen.clocks.get(host)
        quota = facts.limits.cpu_quota
        table.add_row(
            host,
            str(facts.limits.ranks),
            str(facts.limits.cpus) + (f" ({quota:.3g})" if quota is not None else ""),
            _gigabytes(_memory(facts)),
            _gigabytes(facts.limits.arena),
            short_number(speed.cpu) if speed else "-",
            short_number(speed.memory) if speed else "-",
            short_number(rates[host]) if host in rates else "-",
            _ahead(clock.ahead) if clock else "-",
        )
    for host in seen.silent:
        table.add_row(host, *["-"] * 8)
    return table


def short_number(value: float) -> str:
    """Returns a number in at most 7 characters, with three digits at least."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _gigabytes(size: int) -> str:
    return f"{size / (1 << 30):.{0 if size >= 100 << 30 else 1}f} GiB"


def _ahead(seconds: float) -> str:
    return f"{1000 * seconds:+.0f} ms" if abs(seconds) < 1 else f"{seconds:+.0f} s"


def _memory(facts: HostFacts) -> int:
    limits = facts.limits
    return limits.memory if limits.group_memory is None else min(limits.memory, limits.group_memory)


def as_json(
    parts: Sequence[str], here: HostFacts | None, seen: Seen | None, findings: Sequence[Finding]
) -> str:
    """Returns everything as one JSON object (docs/how-to/check.md).

    Args:
        parts: of the installation, a line each.
        here: this host; None: it could not be read.
        seen: of -H; None: there is none.
        findings: of all.
    """
    told: Mapping[str, object] = {
        "schema": SCHEMA,
        "hvd_ft": __version__,
        "exit_code": exit_code(findings),
        "findings": [asdict(finding) for finding in findings],
        "parts": dict(part.split(": ", 1) for part in parts),
        "here": asdict(here) if here else None,
        "hosts": {name: _host(name, seen) for name in (*seen.facts, *seen.silent)} if seen else {},
        "links": [asdict(link) for link in seen.links] if seen else [],
    }
    return json.dumps(told, indent=2)


def _host(name: str, seen: Seen) -> dict[str, object]:
    facts, speed, clock = (each.get(name) for each in (seen.facts, seen.speeds, seen.clocks))
    return {
        "silent": seen.silent.get(name),
        "facts": asdict(facts) if facts else None,
        "speed": asdict(speed) if speed else None,
        "clock": asdict(clock) if clock else None,
    }
