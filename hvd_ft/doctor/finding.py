"""What the rules find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

# A job fails; runs slower than it could, or at risk; or there is only something to know.
ERROR, WARNING, NOTE = SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """Something that was found.

    Attributes:
        id: What kind of thing it is; stays the same from release to release.
        severity: One of `SEVERITIES`.
        what: There is.
        why: It matters; "": that is clear.
        remedy: The command or the setting that mends it.
        hosts: Where it is; none: here.
    """

    id: str
    severity: str
    what: str
    why: str
    remedy: str
    hosts: Sequence[str] = ()

    def on(self, *hosts: str) -> Finding:
        """Returns the same finding of these hosts."""
        return replace(self, hosts=hosts)

    @property
    def line(self) -> str:
        """All of it in a line, in the manner of errors: thing, reason, remedy."""
        where = f"{', '.join(self.hosts)}: " if self.hosts else ""
        why = f": {self.why}" if self.why else ""
        return f"{where}{self.what}{why}; {self.remedy}"


def gathered(findings: Sequence[Finding]) -> list[Finding]:
    """Returns findings with those that are equal on several hosts as one, the gravest first.

    Args:
        findings: in any order.
    """
    hosts: dict[Finding, list[str]] = {}
    for finding in findings:
        hosts.setdefault(finding.on(), []).extend(finding.hosts)
    return sorted(
        (finding.on(*names) for finding, names in hosts.items()),
        key=lambda finding: SEVERITIES.index(finding.severity),
    )
