"""Finds the known word that is probably meant by an unknown one."""

import difflib
from collections.abc import Iterable


def meant(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Returns the question that names the nearest known word; "" if none is near.

    Args:
        word: without the prefix.
        known: words, without it either.
        prefix: that all have.
    """
    nearest = difflib.get_close_matches(word, list(known), n=1)
    return f"is {prefix}{nearest[0]} meant?" if nearest else ""
