"""A manifest holds what it says, or is refused with the reason."""

import re

import msgspec
import pytest

from hvd_ft.checkpoint.manifest import (
    FORMAT,
    VERSION,
    File,
    Manifest,
    Messages,
    Part,
    RefusedError,
    Share,
    decode,
    encode,
    merge,
    messages_under_way,
    name_of,
    usable_loops,
)


def part(rank: int, loop: int = 0, cut: int = 7) -> Part:
    return Part(rank, loop, (cut - 1) // 2, cut, 40, [f"loop{loop}-rank{rank}.safetensors"])


def share(node: int, *parts: Part, sent: int = 0, received: int = 0) -> Share:
    files = {name: File(10, "ab") for each in parts for name in each.files}
    return Share(
        node, list(parts), files, [Messages(0, 1, sent)], [Messages(0, 1, received)], 0.5, 0.1
    )


def manifest(*shares: Share, size: int = 2, nodes: int = 1) -> Manifest:
    apart = len(shares) < nodes
    return Manifest(
        *(FORMAT, VERSION, "hvd_ft 1", "job1", "job0", 5, 6.5, size, nodes, apart, 0, 3, 7),
        list(shares),
    )


def test_it_is_read_as_it_was_written() -> None:
    written = manifest(share(0, part(0), part(1)))
    read = decode(encode(written))
    assert msgspec.structs.replace(read, xxh3_128="") == written
    assert read.missing == []
    assert read.bytes == 20
    assert read.part(1, 0) == part(1)
    assert read.part(1, 1) is None
    assert list(read.files_of([1])) == ["loop0-rank1.safetensors"]


def test_any_bit_that_flips_is_found() -> None:
    data = encode(manifest(share(0, part(0), part(1))))
    bare = re.sub(rb"\s+", b" ", data)
    for at in range(len(bare)):
        if bare[at : at + 1] == b" ":
            continue
        for bit in range(8):
            flipped = bytearray(bare)
            flipped[at] ^= 1 << bit
            if not flipped[at : at + 1].isspace():
                with pytest.raises(RefusedError):
                    decode(bytes(flipped))


def test_a_truncated_one_is_damaged() -> None:
    data = encode(manifest(share(0, part(0), part(1))))
    for length in range(len(data) - 1):
        with pytest.raises(RefusedError):
            decode(data[:length])


def test_others_are_refused_with_the_reason() -> None:
    newer = encode(manifest(share(0, part(0)))).replace(b'"version": 1', b'"version": 2')
    with pytest.raises(RefusedError, match=r"hvd_ft 1 wrote it in version 2 .* up to 1"):
        decode(newer)
    for data in (b'{"format": "x", "version": 1}', b"[]", b'{"name": 3}'):
        with pytest.raises(RefusedError, match="its manifest is not one of hvd_ft"):
            decode(data)
    with pytest.raises(RefusedError, match="its manifest is damaged"):
        decode(b"\x00\xff")


def test_shares_of_hosts_are_one_checkpoint() -> None:
    here, there = share(0, part(0)), share(1, part(1))
    alone = manifest(here, nodes=2)
    assert alone.apart
    assert alone.missing == [1]
    whole = merge([alone, manifest(there, nodes=2), alone])
    assert whole.missing == []
    assert not whole.apart
    assert [each.node for each in whole.shares] == [0, 1]


def test_loops_that_all_ranks_have_at_one_cut_can_be_used() -> None:
    ranks = [part(0), part(1), part(0, 1, 9), part(1, 1, 11), part(0, 2), part(0, 3), part(1, 3)]
    assert usable_loops(manifest(share(0, *ranks))) == [0, 3]
    # A rank that is missing has nothing to say about it.
    assert usable_loops(manifest(share(0, part(0), part(0, 1)))) == [0, 1]


def test_messages_that_were_sent_and_not_received() -> None:
    assert messages_under_way([share(0, sent=3, received=3)]) == []
    assert messages_under_way([share(0, sent=3, received=2)]) == [(0, 1)]


def test_names_say_what_they_are() -> None:
    assert name_of("abc", 2, 61) == "abc-loop2-step00000030"
    assert name_of("abc", 2, 62) == "abc-loop2-step00000030-end"
