"""Numbers written as a span, such as `3` or `2-5`."""


def span_numbers(text: str) -> range:
    """Returns the numbers of a span.

    Args:
        text: `N`, or `N-M` for N to M.

    Raises:
        ValueError: it is no span.
    """
    first, _, last = text.partition("-")
    if not all(word.isascii() and word.isdecimal() for word in (first, last or first)):
        raise ValueError(text)
    return range(int(first), int(last or first) + 1)
