"""Where a loop continues if its checkpoint was written by another number of ranks. Pure."""

from typing import Any


def of_state(values: dict[str, Any], ranks: tuple[int, int]) -> dict[str, Any]:
    """Returns the values of a State's snapshot for another number of ranks.

    A loop that draws its data by itself finds its own numbers unchanged, and so does one whose data
    an ElasticSampler deals out.

    Args:
        values: of the snapshot; see State.
        ranks: of the earlier job and of this one.
    """
    if not values["by_batches"] or values.get("sampled"):
        return values
    own = values["values"]
    batch = scaled(own["batch"], ranks)
    return {**values, "passes": [], "values": {**own, "batch": batch}}


def scaled(steps: int, ranks: tuple[int, int]) -> int:
    """Returns how many steps the new number of ranks needs for what the old one has drawn."""
    old, new = ranks
    return steps * old // new
