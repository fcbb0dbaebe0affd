"""The numbers that the core and the settings share, read from the header that states them.

That needs neither cffi nor a built library: a command that is started where these are missing has
to be able to say so.
"""

import functools
import re
from pathlib import Path

_HEADER = Path(__file__).resolve().parent.parent / "csrc" / "include" / "hvd_ft_limits.h"
_NUMBER = re.compile(r"HVDFT_(\w+) =\s*(\d+)(?: << (\d+))?,")


@functools.cache
def _numbers() -> dict[str, int]:
    found = _NUMBER.findall(_HEADER.read_text(encoding="ascii"))
    return {name: int(number) << int(shift or 0) for name, number, shift in found}


def core_limit(name: str) -> int:
    """Returns one of the core's numbers.

    Args:
        name: as in the header, without the prefix `HVDFT_`.
    """
    return _numbers()[name]
