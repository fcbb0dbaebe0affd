"""Makes damaged inputs out of sound ones: the same ones every time."""

import random
from collections.abc import Iterator, Sequence

# What parsers stumble over.
TOKENS = [
    *(b"[" * 5_000, b'{"a":' * 5_000, b"null", b"-1", b"0", b"1e999", b"NaN", b"-Infinity"),
    *(b"9" * 30, b"9" * 5_000, b"0.5", b'""', b"[]", b"{}", b"true", b'"\\ud800"', b"\xff", b"\0"),
    *(b"\n", b":", b",", b"=", b"-", b"@", b"[0-9]", b"(x9)", b"\xd9\xa1", b"../", b"%s", b"\\"),
]


def mutations(seeds: Sequence[bytes], count: int) -> Iterator[bytes]:
    """Yields so many inputs, the seeds first."""
    yield from seeds
    draw = random.Random(0)
    for _ in range(count - len(seeds)):
        data = draw.choice(seeds)
        for _ in range(draw.choice((1, 1, 1, 2, 4))):
            data = _mutated(draw, data, seeds)
        yield data


def _mutated(draw: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    first, last = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    if draw.random() < 0.4:
        first, last = _word(draw, data)
    if draw.random() < 0.1:
        return data[:first]
    if data and draw.random() < 0.1:
        at = draw.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
    other = draw.choice(seeds)
    kinds = [
        b"",
        *draw.choices(TOKENS, k=3),
        bytes([draw.randrange(256)]),
        data[first:last] * 2,
        other[draw.randrange(len(other) + 1) :],
    ]
    return data[:first] + draw.choice(kinds) + data[last:]


def _word(draw: random.Random, data: bytes) -> tuple[int, int]:
    """Returns where a word begins and ends, as separators cut them: often a value of JSON."""
    ends = [at for at, byte in enumerate(data) if byte in b' \n,:;@=[]{}()"']
    if len(ends) < 2:
        return 0, len(data)
    at = draw.randrange(len(ends) - 1)
    return ends[at] + 1, ends[at + 1]
