"""Divergences in the core's form: a structure with a bit per rank and a name of limited length."""

from typing import Any

from hvd_ft.native import abi
from hvd_ft.native.abi import ffi
from hvd_ft.native.rank_words import BITS, rank_words
from hvd_ft.native.types import Divergence

_FIELDS = dict(ffi.typeof("hvdft_divergence").fields)
_NAME_BYTES = ffi.sizeof(_FIELDS["variable"].type)
_WORDS = _FIELDS["ranks"].type.length


def struct_of(found: Divergence) -> Any:
    """Returns the C structure of a divergence.

    A name that is too long ends with an ellipsis; ranks from 256 on are left out.
    """
    name = found.variable.encode()
    if len(name) >= _NAME_BYTES:
        name = name[: _NAME_BYTES - 4].decode(errors="ignore").encode() + "…".encode()
    words = rank_words((rank for rank in found.ranks if rank < _WORDS * BITS), _WORDS)
    return ffi.new(
        "hvdft_divergence *", (found.step, found.equal_step, found.variables, words, name)
    )


def read_divergence(read: Any, number: int) -> Divergence | None:
    """Reads a divergence.

    Args:
        read: the core's function, which takes the number and a structure.
        number: the number of the divergence, in the order of their discovery.

    Returns:
        The divergence; None if newer ones have overwritten it, or there is none.
    """
    out = ffi.new("hvdft_divergence *")
    if read(number, out):
        return None
    bits = sum(int(word) << BITS * at for at, word in enumerate(out.ranks))
    return Divergence(
        variable=abi.text(out.variable),
        step=int(out.step),
        ranks=tuple(rank for rank in range(bits.bit_length()) if bits >> rank & 1),
        variables=int(out.variables),
        equal_step=int(out.equal_step),
    )
