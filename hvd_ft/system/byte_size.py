"""Sizes of memory in words."""

_MIB, _GIB = 1 << 20, 1 << 30


def in_words(size: int) -> str:
    """Returns a number of bytes, rounded up, in MiB, or in GiB from 10 GiB on."""
    return f"{-(-size // _MIB)} MiB" if size < 10 * _GIB else f"{size / _GIB:.1f} GiB"
