"""The manifest of a checkpoint: its contents, its files, and a hash of each file. Pure.

A checkpoint is a directory with one manifest.json. If the hosts of a job share no directory, each
host's directory contains the shares of its own nodes, with a manifest that says so.

Hashes are XXH3 with 128 bits, like fingerprints (worker/shared_contents.py). They find damage by a
disk or a copy, but not forgery: whoever can write there can also write a manifest.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import xxhash

from hvd_ft.errors import HvdFtError

FORMAT = "hvd_ft checkpoint"
VERSION = 1  # of the format
MANIFEST = "manifest.json"


class RefusedError(HvdFtError):
    """A directory is not a usable checkpoint; the line says why, without a remedy."""


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a checkpoint.

    Attributes:
        bytes: length of the file.
        xxh3_128: hash of its bytes, in hexadecimal digits.
    """

    bytes: int
    xxh3_128: str


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rank's snapshot of a training loop.

    Attributes:
        rank: the rank.
        loop: number of the training loop, from 0.
        step: steps of the loop that are done.
        cut: number of the cut.
        position: the rank's position in the op log.
        files: the files of its tensors; of a tensor in several of them, the first one counts.
    """

    rank: int
    loop: int
    step: int
    cut: int
    position: int
    files: list[str]


class Messages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Messages from one rank to another, up to the cut, as one end of the pair counts them."""

    source: int
    dest: int
    count: int


class Share(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one node has written.

    Attributes:
        node: number of the node in the job.
        parts: the parts of its ranks.
        files: by name.
        sent: messages from its ranks to any rank.
        received: messages from any rank to its ranks.
        seconds: the time to copy and write it.
        cpu_seconds: the CPU time of that.
        size: number of ranks of the job at the cut; 0: as many as at the job's beginning.
    """

    node: int
    parts: list[Part]
    files: dict[str, File]
    sent: list[Messages]
    received: list[Messages]
    seconds: float
    cpu_seconds: float
    size: int = 0


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A checkpoint, or a node's share of one.

    Attributes:
        format: always `FORMAT`.
        version: version of the format.
        software: the software that wrote it.
        job: id of the job.
        run: id of the first job in the series of jobs that resumed one from another.
        begun: when the job began, in seconds since 1970.
        written: when the checkpoint was written, likewise.
        size: number of ranks of the job.
        nodes: number of nodes of the job.
        apart: whether shares of other nodes lie in other hosts' directories.
        loop: number of the latest training loop in it.
        step: steps of that loop that are done.
        cut: cut of that loop.
        shares: the nodes' shares.
        xxh3_128: hash of everything else in here.
    """

    format: str
    version: int
    software: str
    job: str
    run: str
    begun: int
    written: float
    size: int
    nodes: int
    apart: bool
    loop: int
    step: int
    cut: int
    shares: list[Share]
    xxh3_128: str = ""

    @property
    def whole(self) -> bool:
        """Whether no rank's part is missing, as far as this directory shows."""
        return self.apart or not self.missing

    @property
    def missing(self) -> list[int]:
        """The ranks whose part of the latest loop is not there."""
        there = {part.rank for share in self.shares for part in share.parts if self._latest(part)}
        return [rank for rank in range(self.size) if rank not in there]

    @property
    def files(self) -> dict[str, File]:
        """All files by name."""
        return {name: file for share in self.shares for name, file in share.files.items()}

    @property
    def bytes(self) -> int:
        """Of all files together."""
        return sum(file.bytes for file in self.files.values())

    @property
    def parts(self) -> list[Part]:
        """Of all ranks."""
        return [part for share in self.shares for part in share.parts]

    def part(self, rank: int, loop: int) -> Part | None:
        """Returns a rank's part of a loop, if it is there."""
        return next((p for p in self.parts if (p.rank, p.loop) == (rank, loop)), None)

    def files_of(self, ranks: Sequence[int]) -> dict[str, File]:
        """Returns the files that these ranks need."""
        names = {name for part in self.parts if part.rank in ranks for name in part.files}
        return {name: file for name, file in self.files.items() if name in names}

    def _latest(self, part: Part) -> bool:
        return (part.loop, part.cut) == (self.loop, self.cut)


class _Head(msgspec.Struct):
    """What every version of the format has."""

    format: str
    version: int
    software: str = "an unknown version"


def name_of(job: str, loop: int, cut: int) -> str:
    """Returns the name of a checkpoint's directory.

    Args:
        job: the job's id.
        loop: number of the training loop.
        cut: cut of the loop; an even number means the loop's end.
    """
    end = "" if cut % 2 else "-end"
    return f"{job}-loop{loop}-step{(cut - 1) // 2:08d}{end}"


def encode(manifest: Manifest) -> bytes:
    """Returns the text of a manifest, with its hash."""
    sealed = msgspec.structs.replace(manifest, xxh3_128=_hash(manifest))
    return msgspec.json.format(msgspec.json.encode(sealed), indent=1) + b"\n"


def decode(data: bytes) -> Manifest:
    """Reads a manifest.

    Raises:
        RefusedError: it is another program's or a newer version's, or damaged.
    """
    try:
        head = msgspec.json.decode(data, type=_Head)
    except msgspec.ValidationError:
        raise RefusedError("its manifest is not one of hvd_ft") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(f"its manifest is damaged ({error})") from None
    if head.format != FORMAT:
        raise RefusedError("its manifest is not one of hvd_ft")
    if head.version > VERSION:
        raise RefusedError(
            f"{head.software} wrote it in version {head.version} of the format, and this hvd_ft "
            f"reads versions up to {VERSION}"
        )
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(f"its manifest is damaged ({error})") from None
    if manifest.xxh3_128 != _hash(manifest):
        raise RefusedError("its manifest is damaged (the hash in it is another one)")
    return manifest


def merge(manifests: Sequence[Manifest]) -> Manifest:
    """Returns the whole checkpoint from shares that lie in several places."""
    by_node = {share.node: share for manifest in manifests for share in manifest.shares}
    shares = [share for _, share in sorted(by_node.items())]
    apart = len(shares) < manifests[0].nodes
    return msgspec.structs.replace(manifests[0], shares=shares, apart=apart)


def usable_loops(manifest: Manifest) -> list[int]:
    """Returns the loops that all ranks whose parts exist have at the same cut."""
    there = set(range(manifest.size)) - set(manifest.missing)
    cuts: dict[int, dict[int, int]] = {}
    for part in manifest.parts:
        cuts.setdefault(part.loop, {})[part.rank] = part.cut
    return sorted(
        loop
        for loop, of_ranks in cuts.items()
        if there <= of_ranks.keys() and len({of_ranks[rank] for rank in there}) == 1
    )


def messages_under_way(shares: Sequence[Share]) -> list[tuple[int, int]]:
    """Returns the pairs of ranks between which messages were sent and not yet received."""
    counts: list[dict[tuple[int, int], int]] = [
        {(m.source, m.dest): m.count for share in shares for m in getattr(share, end)}
        for end in ("sent", "received")
    ]
    sent, received = counts
    pairs = sent.keys() | received.keys()
    return sorted(pair for pair in pairs if sent.get(pair, 0) != received.get(pair, 0))


def _hash(manifest: Manifest) -> str:
    bare: Any = msgspec.structs.replace(manifest, xxh3_128="")
    return xxhash.xxh3_128_hexdigest(msgspec.json.encode(bare))
