"""How ranks share a snapshot: fingerprints, equal arrays, stripes. Pure.

Ranks of one node store the arrays that are equal on all of them once. Nothing is assumed: each rank
publishes a fingerprint of every array at a cut, and arrays are equal if their fingerprints are. The
shared arrays, one after the other, are cut into stripes, and each rank stores one stripe. If there
are more arrays than there is room for fingerprints, consecutive arrays form a *group* with one
fingerprint.

Fingerprints are XXH3 with 128 bits: at 10 GB/s and more on one core it is the fastest of the
well-kept hashes, and two different arrays have the same one by chance once in 2^128. They are
stored with the snapshot and compared when it is read, so damage to it is found.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import xxhash

from hvd_ft.errors import HvdFtError
from hvd_ft.worker.snapshot_format import decode, encode

_BYTES = 16  # of a fingerprint
_ALIGN = 64
_PAGE = 4096
_VALUES = "values"  # the name of the frozen values among a slot's arrays
MIN_SHARED_BYTES = 64 << 10  # sharing a smaller array costs more than it saves
MAX_GROUPS = 4094  # so many fingerprints, and that of what there is, are published at a cut

Arrays = Mapping[str, np.ndarray]


def freeze(arrays: Arrays, values: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Makes a cut's contents independent of what the script does next.

    Args:
        arrays: any shapes. Large ones (`MIN_SHARED_BYTES`) must never change.
        values: as for `snapshot_format.encode`.

    Returns:
        The arrays, the small ones copied; and the values as bytes.

    Raises:
        HvdFtError: names the value that cannot be kept.
    """
    kept = {
        name: array if array.nbytes >= MIN_SHARED_BYTES else np.array(array)
        for name, array in arrays.items()
    }
    return kept, np.frombuffer(b"".join(encode({}, values)), np.uint8)


def groups(count: int, most: int = MAX_GROUPS) -> list[range]:
    """Returns, for each fingerprint, the numbers of the arrays that share it.

    Args:
        count: number of arrays; if at most `most`, each has its own fingerprint.
        most: the largest number of groups.
    """
    each = max(1, -(-count // most))
    return [range(first, min(first + each, count)) for first in range(0, count, each)]


def fingerprints(arrays: Arrays, cut: int, position: int, most: int = MAX_GROUPS) -> bytes:
    """Returns a rank's fingerprints at a cut: one of the list of arrays, then one of each group.

    Args:
        arrays: contiguous or not, any shapes.
        cut: number of the cut.
        position: the rank's position in the op log; ranks at different positions share nothing.
        most: the largest number of groups.
    """
    all_arrays = list(arrays.values())
    data = (
        _of_group([all_arrays[number] for number in group]) for group in groups(len(arrays), most)
    )
    return b"".join((_of_place(arrays, cut, position), *data))


def _of_place(arrays: Arrays, cut: int, position: int) -> bytes:
    """Returns the fingerprint of the list of arrays and of the boundary."""
    # Without the names: Horovod puts the rank's number into some.
    kinds = [[str(array.dtype), array.shape] for array in arrays.values()]
    return xxhash.xxh3_128_digest(json.dumps([cut, position, kinds]).encode())


def _of_group(arrays: Sequence[np.ndarray]) -> bytes:
    digests = [xxhash.xxh3_128_digest(_bytes(array).data) for array in arrays]
    return digests[0] if len(digests) == 1 else xxhash.xxh3_128_digest(b"".join(digests))


def of_groups(prints: bytes) -> list[bytes]:
    """Returns the fingerprint of each group among a rank's fingerprints."""
    return [prints[at : at + _BYTES] for at in range(_BYTES, len(prints), _BYTES)]


def differing(all_ranks: Sequence[bytes]) -> set[int] | None:
    """Compares ranks' fingerprints.

    Args:
        all_ranks: the result of `fingerprints` on each rank.

    Returns:
        The numbers of the groups that are not equal on all ranks; None if the ranks were not at the
        same boundary with the same arrays, so that nothing can be compared.
    """
    first = all_ranks[0]
    if any(other[:_BYTES] != first[:_BYTES] for other in all_ranks):
        return None
    prints = np.array([np.frombuffer(each, np.uint8) for each in all_ranks]).reshape(
        len(all_ranks), -1, _BYTES
    )[:, 1:]
    return set(np.flatnonzero((prints != prints[0]).any((0, 2))).tolist())


def shared(arrays: Arrays, differ: Set[int], most: int = MAX_GROUPS) -> list[str]:
    """Returns the names of the arrays that are stored once: equal on all ranks, and large.

    Args:
        arrays: this rank's arrays.
        differ: as `differing` returned it.
        most: the largest number of groups.
    """
    names = list(arrays)
    equal = [group for at, group in enumerate(groups(len(names), most)) if at not in differ]
    of_equal = [names[number] for group in equal for number in group]
    return [name for name in of_equal if arrays[name].nbytes >= MIN_SHARED_BYTES]


def agreement(all_ranks: Sequence[bytes]) -> int:
    """Returns a number, not 0, that is equal on ranks that compared the same fingerprints."""
    return xxhash.xxh32_intdigest(b"".join(all_ranks)) or 1


class Part:
    """The part of a snapshot that one rank stores: its own data, and a stripe of the shared data.

    Args:
        arrays: all of the rank's arrays, as `freeze` returned them.
        values: likewise.
        shared: names of the arrays that are equal on all ranks of the node, in one order.
        number: the rank's number among the node's ranks.
        count: number of the node's ranks.
        prints: the rank's fingerprints, needed by readers, and by a node that takes the place of
            this one (lost_rank.py).

    Attributes:
        own_bytes: bytes of the rank's own arrays and values; the stripe begins at the next page.
        bytes: bytes of the whole part.
    """

    def __init__(
        self,
        arrays: Arrays,
        values: np.ndarray,
        shared: Sequence[str],
        number: int,
        count: int,
        *,
        prints: bytes,
    ) -> None:
        table: dict[str, Any] = {}
        end = 0
        for name in shared:
            array = arrays[name]
            table[name] = {"dtype": array.dtype.name, "shape": array.shape, "offset": end}
            end += _aligned(array.nbytes, _ALIGN)
        own = {name: array for name, array in arrays.items() if name not in table}
        about = {
            "shared": table,
            "shared_bytes": end,
            "order": list(arrays),
            "prints": b64encode(prints).decode(),
            "values": xxhash.xxh3_128_hexdigest(values.data),
        }
        self._own = encode({**own, _VALUES: values}, about)
        self.own_bytes = sum(part.nbytes for part in self._own)
        begin, to = stripe(end, number, count)
        self.stripe, self.bytes = layout(self.own_bytes, end, number, count)
        self._pieces: list[tuple[int, np.ndarray]] = []
        for name in shared:
            offset, data = table[name]["offset"], _bytes(arrays[name])
            first, last = max(begin, offset), min(to, offset + data.nbytes)
            if first < last:
                self._pieces.append((first - begin, data[first - offset : last - offset]))

    def write(self, room: np.ndarray) -> Iterator[None]:
        """Copies everything into `room`, one array at a time, and drops its reference to it.

        Args:
            room: uint8, `bytes` long.
        """
        at = 0
        self._own.reverse()  # to be popped from the end
        while self._own:
            part = np.frombuffer(self._own.pop(), np.uint8)
            np.copyto(room[at : at + part.nbytes], part)
            at += part.nbytes
            yield
        self._pieces.reverse()
        while self._pieces:
            offset, data = self._pieces.pop()
            np.copyto(room[self.stripe + offset : self.stripe + offset + data.nbytes], data)
            yield


@dataclass(frozen=True)
class Place:
    """Where a rank has taken a snapshot.

    Attributes:
        cut: number of the cut.
        position: the rank's position in the op log.
    """

    cut: int
    position: int

    def __str__(self) -> str:
        return f"cut {self.cut} at op {self.position}"


@dataclass(frozen=True)
class Contents:
    """The contents of a rank's part of a snapshot and of the stripes of its node.

    Attributes:
        arrays: in order; arrays that lie across stripes are joined when they are accessed.
        values: as `freeze` returned them.
        shared: names of the arrays that are equal on all ranks of the node.
    """

    arrays: Mapping[str, np.ndarray]
    values: memoryview
    shared: Set[str]


def contents(
    own: memoryview, stripes: Sequence[memoryview], place: Place, *, check_shared: bool = True
) -> Contents:
    """Reads a snapshot from a rank's part and the stripes of all ranks of its node.

    Args:
        own: the rank's own part, as `Part.write` has written it.
        stripes: in the order of ranks; none if nothing is shared.
        place: where the snapshot was taken, according to the arena.
        check_shared: whether to compare the shared arrays with their fingerprints too; it is enough
            if one of the ranks that share them does.

    Raises:
        HvdFtError: the bytes are not a complete snapshot, or have changed since they were written;
            the message names the variables.
    """
    own_arrays, about = decode(own)
    values = own_arrays.pop(_VALUES)
    shared: dict[str, Any] = about["shared"]
    arrays: Arrays = _Arrays(own_arrays, about, stripes) if shared else own_arrays
    if xxhash.xxh3_128_hexdigest(values.data) != about["values"]:
        raise HvdFtError("it is damaged: its values are not as they were written")
    _compare(arrays, b64decode(about["prints"]), place, () if check_shared else shared.keys())
    return Contents(arrays, values.data, shared.keys())


def _compare(arrays: Arrays, prints: bytes, place: Place, left_out: Collection[str]) -> None:
    """Raises HvdFtError unless all arrays, except those left out, match their fingerprints."""
    names = list(arrays)
    for group, expected in zip(groups(len(names)), of_groups(prints), strict=True):
        of_group = [names[number] for number in group]
        if all(name in left_out for name in of_group):
            continue
        if _of_group([arrays[name] for name in of_group]) != expected:
            found = f"the variable {of_group[0]} is" if len(group) == 1 else f"one of {of_group} is"
            raise HvdFtError(f"it is damaged: {found} not as it was written")
    if prints[:_BYTES] != _of_place(arrays, place.cut, place.position):
        raise HvdFtError(f"it is damaged: it is not that of {place}")


def unpack(
    own: memoryview, stripes: Sequence[memoryview], place: Place
) -> tuple[Mapping[str, np.ndarray], dict[str, Any]]:
    """Returns the arrays and the values of a snapshot; see `contents`."""
    found = contents(own, stripes, place)
    return found.arrays, thawed(found.values)


def thawed(values: memoryview) -> dict[str, Any]:
    """Returns the values from the bytes that `freeze` has made.

    Raises:
        HvdFtError: these are not such bytes.
    """
    return decode(values)[1]


def stripe(size: int, number: int, count: int) -> tuple[int, int]:
    """Returns the bytes, from and to, of a rank's stripe of `size` shared bytes: whole pages."""
    each = _aligned(-(-size // count), _PAGE)
    return min(size, number * each), min(size, (number + 1) * each)


def layout(own_bytes: int, shared_bytes: int, number: int, count: int) -> tuple[int, int]:
    """Returns where a rank's stripe begins in its slot, and the total number of bytes."""
    begin, to = stripe(shared_bytes, number, count)
    at = _aligned(own_bytes, _PAGE)
    return at, at + to - begin if shared_bytes else own_bytes


class _Arrays(Mapping[str, np.ndarray]):
    """A rank's own arrays and the shared ones."""

    def __init__(
        self,
        own: Arrays,
        about: Mapping[str, Any],
        stripes: Sequence[memoryview],
    ) -> None:
        size, count = about["shared_bytes"], len(stripes)
        ends = [stripe(size, number, count) for number in range(count)]
        if any(data.nbytes < to - begin for data, (begin, to) in zip(stripes, ends, strict=True)):
            raise HvdFtError("a rank's stripe of the snapshot is too short; start the job again")
        self._own, self._shared, self._order = own, about["shared"], about["order"]
        self._stripes = [
            (begin, to, np.frombuffer(data, np.uint8, to - begin))
            for data, (begin, to) in zip(stripes, ends, strict=True)
            if begin < to
        ]

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._shared:
            return self._own[name]
        entry = self._shared[name]
        dtype, shape, offset = np.dtype(entry["dtype"]), tuple(entry["shape"]), entry["offset"]
        end = offset + dtype.itemsize * prod(shape)
        pieces = [
            data[max(begin, offset) - begin : min(to, end) - begin]
            for begin, to, data in self._stripes
            if max(begin, offset) < min(to, end)
        ]
        whole = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return whole.view(dtype).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)


def _aligned(size: int, to: int) -> int:
    return -(-size // to) * to


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
