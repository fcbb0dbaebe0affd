"""How the values of settings are read from an environment; an empty one counts as unset.

Each function takes the environment, the variable's name and the default. They raise HvdFtError,
which names the variable, its value and what is allowed.
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from hvd_ft.errors import HvdFtError
from hvd_ft.members.membership import Membership
from hvd_ft.system.byte_size import parse_bytes, short


def _wrong(name: str, value: str, allowed: str) -> HvdFtError:
    return HvdFtError(f"{name}={value!r} is not allowed: give {allowed}")


Place = TypeVar("Place", str, None)


def directory(env: Mapping[str, str], name: str, default: Place) -> str | Place:
    """Reads an absolute path."""
    value = env.get(name)
    if not value:
        return default
    if not os.path.isabs(value):
        raise _wrong(name, value, "an absolute path")
    return os.path.normpath(value)


Number = TypeVar("Number", int, None)


def byte_count(
    env: Mapping[str, str],
    name: str,
    default: Number,
    *,
    least: int,
    most: int | None = None,
    power: bool = False,
    zero: str = "",
) -> int | Number:
    """Reads a number of bytes, with or without a suffix.

    With `power` it has to be a power of two; `zero` says what 0 means where it is allowed.
    """
    value = env.get(name)
    if not value:
        return default
    try:
        count = parse_bytes(value)
    except ValueError:
        count = 0 if zero and value.strip() == "0" else -1
    within = least <= count and (most is None or count <= most)
    if not (within or (zero and count == 0)) or (power and count.bit_count() != 1):
        raise _wrong(name, value, _sizes(least, most, power, zero))
    return count


def _sizes(least: int, most: int | None, power: bool, zero: str) -> str:
    if power and most:
        sizes = [short(1 << n) for n in range(least.bit_length() - 1, most.bit_length())]
        return f"{', '.join(sizes[:-1])} or {sizes[-1]}"
    bounds = f"from {short(least)} to {short(most)}" if most else f"of at least {short(least)}"
    none = f"; 0: {zero}" if zero else ""
    return f"a number of bytes {bounds}, with or without a suffix K, M or G{none}"


def choice(env: Mapping[str, str], name: str, default: str, *, choices: Sequence[str]) -> str:
    """Reads one of several words."""
    value = env.get(name) or default
    if value not in choices:
        raise _wrong(name, value, " or ".join(choices))
    return value


def job_id(env: Mapping[str, str], name: str, default: str | None) -> str | None:
    """Reads a job id."""
    value = env.get(name)
    if not value:
        return default
    if not is_job_id(value):
        raise _wrong(name, value, "1 to 48 letters and digits")
    return value


def is_job_id(text: str) -> bool:
    """Returns whether `text` is a valid job id: it becomes the name of a directory."""
    return re.fullmatch(r"[A-Za-z0-9]{1,48}", text) is not None


def members(env: Mapping[str, str], name: str, default: None) -> Membership | None:
    """Reads the membership that hvdft run gives to agents."""
    value = env.get(name)
    if not value:
        return default
    try:
        return Membership.parse(value)
    except ValueError:
        raise _wrong(name, value, "nothing: hvdft run sets it") from None


Default = TypeVar("Default", float, None)


def seconds(
    env: Mapping[str, str], name: str, default: Default, zero: str = "", most: float = 10**7
) -> float | Default:
    """Reads a number of seconds; `zero` says what 0 means where it is allowed."""
    value = env.get(name)
    if not value:
        return default
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not (0 < seconds <= most or (zero and seconds == 0)):
        none = f", or 0 for {zero}" if zero else ""
        raise _wrong(name, value, f"a number of seconds above 0 (at most {most:.10g}){none}")
    return seconds


def count(
    env: Mapping[str, str],
    name: str,
    default: int,
    *,
    least: int = 0,
    most: int = 9999,
    zero: str = "",
) -> int:
    """Reads a number of things, from `least` to `most`; `zero` says what 0 means."""
    value = env.get(name)
    if not value:
        return default
    whole = re.fullmatch(r"[0-9]{1,4}", value.strip(), re.ASCII) is not None
    if not whole or not least <= int(value) <= most:
        meaning = f" ({zero})" if zero else ""
        raise _wrong(name, value, f"a whole number from {least}{meaning} to {most}")
    return int(value)
