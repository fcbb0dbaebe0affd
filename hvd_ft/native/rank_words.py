"""Sets of ranks in the core's form: words with a bit for each rank."""

from collections.abc import Iterable

BITS = 64  # of a word
ALL = 64  # words for every rank that a job may have


def rank_words(ranks: Iterable[int], count: int = ALL) -> list[int]:
    """Returns the words that have a bit for each of these ranks.

    Args:
        ranks: their numbers.
        count: of words.
    """
    words = [0] * count
    for rank in ranks:
        words[rank // BITS] |= 1 << rank % BITS
    return words
