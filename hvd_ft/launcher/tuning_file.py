"""Files of settings that `hvdft tune` has found for some hosts, and that `hvdft run` uses.

A file is JSON and is checked when it is read: it can only set the variables in `TUNABLE`, to values
that are allowed for them. It records where it was measured, and does not fit anywhere else.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hvd_ft.errors import HvdFtError
from hvd_ft.job.settings import Settings
from hvd_ft.mpi.variables import SAME
from hvd_ft.system.json_text import read_json

FORMAT = 1
OFF = "off"  # instead of a file: none is looked for
# What a file may set; of a variable with others beside it, one that the user has set counts as this
# one.
TUNABLE: Mapping[str, Sequence[str]] = {
    "HOROVOD_FT_TOPOLOGY": (),
    "HOROVOD_FT_ENDPOINTS": (),
    "HOROVOD_FT_CONNECTIONS": (),
    "HOROVOD_FT_TRANSFERS": (),
    "HOROVOD_FT_RING_SEGMENT_BYTES": (),
    "HOROVOD_FT_NODE_SEGMENT_BYTES": ("HOROVOD_FT_NODE_WINDOW_BYTES",),  # they go together
    "HOROVOD_FT_NODE_WINDOW_BYTES": ("HOROVOD_FT_NODE_SEGMENT_BYTES",),
    "HOROVOD_FT_GATHER_BYTES": (),
    "HOROVOD_FT_NODES_BELOW": (),
    "HOROVOD_FT_YIELD_SECONDS": (),
    "HOROVOD_FT_NAP_SECONDS": (),
    "HOROVOD_FT_BIND_TO": SAME["HOROVOD_FT_BIND_TO"],
    "FI_PROVIDER": SAME["FI_PROVIDER"],
    "FI_TCP_IFACE": (),
}
_WORD = re.compile(r"[A-Za-z0-9_.:;@-]{1,64}")  # a value that is none of our settings
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Place:
    """The hosts and versions for which settings are measured.

    Attributes:
        hosts: Hosts with slots such as `n0:4`, in the order of ranks.
        ranks: The number of ranks.
        cpus: The number of CPUs of each host where it is known, by the host's name.
        provider: The provider of libfabric without tuning; `shared memory` on one host.
        versions: The versions of hvd_ft and Intel MPI, by name.
    """

    hosts: Sequence[str]
    ranks: int
    cpus: Mapping[str, int]
    provider: str
    versions: Mapping[str, str]

    def why_not(self, here: "Place") -> str:
        """Returns why measurements in this place do not fit another place; "" if they fit.

        Args:
            here: The other place. CPUs are compared only where they are known.
        """
        if list(self.hosts) != list(here.hosts):
            return f"it is for {','.join(self.hosts)}, not {','.join(here.hosts)}"
        if self.ranks != here.ranks:
            return f"it is for {self.ranks} ranks, not {here.ranks}"
        for host, count in here.cpus.items():
            if self.cpus.get(host) != count:
                return f"{host} had {self.cpus.get(host)} CPUs then, not {count}"
        if self.provider != here.provider:
            return f"it is for {self.provider}, not {here.provider}"
        for name, version in here.versions.items():
            if self.versions.get(name) != version:
                return f"it is for {name} {self.versions.get(name)}, not {version}"
        return ""


@dataclass(frozen=True)
class Tuning:
    """Settings, and the place for which they were measured.

    Attributes:
        place: The place.
        settings: Settings by environment variable; those that keep their defaults are absent.
        made: The date, such as `2026-11-26`.
        seconds: Seconds of an allreduce with the defaults and with these settings, by its bytes.
    """

    place: Place
    settings: Mapping[str, str]
    made: str
    seconds: Mapping[str, tuple[float, float]]

    @property
    def change(self) -> float:
        """The relative change of the time, such as -0.1 for a tenth less; a geometric mean."""
        logs = [math.log(tuned / default) for default, tuned in self.seconds.values()]
        return math.expm1(sum(logs) / len(logs)) if logs else 0.0


def to_text(tuning: Tuning) -> str:
    """Returns the text of a tuning's file."""
    return json.dumps({"format": FORMAT, **asdict(tuning)}, indent=2) + "\n"


def read(path: str) -> Tuning:
    """Reads a file.

    Raises:
        HvdFtError: The file cannot be read, or is no tuning file; names the file and the reason.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise ValueError("it is too long")
        return _parse(read_json(text))
    except (OSError, ValueError, KeyError, TypeError, RecursionError, HvdFtError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        if isinstance(error, OSError):
            reason = error.strerror or reason
        raise HvdFtError(
            f"the tuning file {path} cannot be used ({reason}): make it anew with hvdft tune"
        ) from None


def _parse(found: Any) -> Tuning:
    if not isinstance(found, dict) or found["format"] != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    place, seconds = found["place"], found["seconds"]
    return Tuning(
        Place(
            [_text(host, "a host") for host in _list(place["hosts"])],
            _count(place["ranks"], "ranks"),
            {_text(host, "a host"): _count(n, "CPUs") for host, n in _dict(place["cpus"]).items()},
            _text(place["provider"], "provider"),
            {_text(n, "a name"): _text(v, n) for n, v in _dict(place["versions"]).items()},
        ),
        check_settings(_dict(found["settings"])),
        _text(found["made"], "made"),
        {_text(size, "a size"): _pair(pair) for size, pair in _dict(seconds).items()},
    )


def check_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """Checks that settings may be in such a file; returns them.

    Raises:
        ValueError, HvdFtError: A setting may not be there, or its value is not allowed.
    """
    for name, value in settings.items():
        if name not in TUNABLE:
            raise ValueError(f"a tuning may not set {name}")
        if not isinstance(value, str) or not _WORD.fullmatch(value):
            raise ValueError(f"{name}={value!r} is not allowed")
    Settings.from_env({n: v for n, v in settings.items() if n.startswith("HOROVOD_FT_")})
    return dict(settings)


def is_set(name: str, environ: Mapping[str, str]) -> bool:
    """Returns whether the user has set a variable, or another one with the same meaning."""
    return any(environ.get(each) for each in (name, *TUNABLE[name]))


def default_path(hosts: Sequence[str], environ: Mapping[str, str]) -> str:
    """Returns the default path of the file for some hosts.

    Args:
        hosts: As in `Place`.
        environ: The user's environment.
    """
    config = environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    name = "_".join(hosts).replace(":", "-")
    if len(name) > 100:
        name = f"{name[:80]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return os.path.join(config, "hvd_ft", "tuning", f"{name}.json")


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 256 or not value.isprintable():
        raise ValueError(f"{value!r} is not a text for {what}")
    return value


def _count(value: Any, what: str) -> int:
    if type(value) is not int or not 0 < value < 1 << 31:
        raise ValueError(f"{value!r} is not a number of {what}")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not a list")
    return value


def _dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not an object")
    return value


def _pair(value: Any) -> tuple[float, float]:
    numbers = [n for n in _list(value) if isinstance(n, int | float) and 0 < n < math.inf]
    if len(numbers) != 2 or len(value) != 2:
        raise ValueError(f"{value!r} is not a pair of times")
    return float(numbers[0]), float(numbers[1])
