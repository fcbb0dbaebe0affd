"""Sizes of memory in words, and read from words."""

import re

_MIB, _GIB = 1 << 20, 1 << 30
_UNITS = {"": 1, "K": 1 << 10, "M": _MIB, "G": _GIB}


def in_words(size: int) -> str:
    """Returns a number of bytes, rounded up, in MiB, or in GiB from 10 GiB on."""
    return f"{-(-size // _MIB)} MiB" if size < 10 * _GIB else f"{size / _GIB:.1f} GiB"


def short(size: int) -> str:
    """Returns a number of bytes as `parse_bytes` reads it, such as `8`, `64K` or `1M`."""
    for unit, bytes_of in reversed(_UNITS.items()):
        if size and size % bytes_of == 0:
            return f"{size // bytes_of}{unit}"
    return str(size)


def parse_bytes(text: str) -> int:
    """Reads a number of bytes such as `4`, `64K` or `1M`.

    Raises:
        ValueError: it is not a number of bytes.
    """
    match = re.fullmatch(r"([0-9]{1,12})([KMG]?)", text.strip().upper(), re.ASCII)
    if match is None or int(match[1]) == 0:
        raise ValueError(f"{text!r} is not a number of bytes, such as 4, 64K or 1M")
    return int(match[1]) * _UNITS[match[2]]
