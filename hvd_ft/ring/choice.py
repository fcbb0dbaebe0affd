"""How many rings with how many endpoints a member can have; pure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """What a ring uses.

    Attributes:
        rings: number of rings that carry large arrays side by side.
        endpoints: number of a member's endpoints in each ring.
        why: why there are fewer than asked for, or than usual; otherwise "".
    """

    rings: int
    endpoints: int
    why: str


def choose(own: int, members: int, rings: int, endpoints: int | None, few_cpus: str) -> Choice:
    """Chooses; members that give the same arguments get the same result.

    Args:
        own: number of MPI endpoints besides the program's, at least 1.
        members: number of members of the ring.
        rings: number of rings asked for.
        endpoints: number of a member's endpoints in each ring, asked for: 1 or 2; None: depends on
            the number of CPUs.
        few_cpus: why a thread for each direction would be slower; "" if it would not.
    """
    # Edges are coloured, so that a member has different endpoints for its two.
    colours = 1 if members == 1 else 2 if members % 2 == 0 else 3
    one = endpoints == 1 or (endpoints is None and bool(few_cpus))
    needed = rings if one else rings * colours
    if own >= needed:
        return Choice(rings, 1 if one else 2, few_cpus if endpoints is None else "")
    why = (
        f"MPI was started with {own + 1} endpoints, and {needed + 1} are needed: "
        f"call hvd_ft.ring.prepare(endpoints={1 if one else 2}, rings={rings}) before mpi4py"
    )
    return Choice(min(rings, own), 1, why)
