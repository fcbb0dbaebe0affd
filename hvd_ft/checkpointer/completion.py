"""Turns the nodes' shares into a checkpoint: writes the manifest, then renames the directory."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from hvd_ft import __version__
from hvd_ft.checkpoint.manifest import (
    FORMAT,
    MANIFEST,
    VERSION,
    Manifest,
    Part,
    Share,
    encode,
    messages_under_way,
)
from hvd_ft.checkpointer.cuts import Cut
from hvd_ft.checkpointer.origin import Origin, draft_of, sync, write_file
from hvd_ft.errors import HvdFtError
from hvd_ft.system.json_text import read_json_as


def complete(origin: Origin, cut: Cut, nodes: Sequence[int]) -> None:
    """Makes a checkpoint of shares that all exist; another node may be doing the same.

    Args:
        origin: origin of the checkpoint.
        cut: cut of the checkpoint.
        nodes: the nodes whose shares it contains.

    Raises:
        OSError: it cannot be written.
        HvdFtError: it would lack messages between ranks, or a share is damaged.
    """
    partial = origin.partial(cut)
    try:
        paths = [origin.share(cut, node) for node in nodes]
        shares = [_read(path) for path in paths]
        write_file(partial / MANIFEST, encode(_manifest(origin, cut, shares)), origin.place.node)
        sync(partial)
        os.rename(partial, origin.path(cut))
        # Not before: another node that does the same sees all shares, or the checkpoint.
        for path in [*paths, origin.prints(cut)]:
            (origin.path(cut) / path.name).unlink(missing_ok=True)
    except OSError:
        if not origin.is_complete(cut):  # by another node
            raise
        draft_of(origin.path(cut) / MANIFEST, origin.place.node).unlink(missing_ok=True)
    sync(origin.directory)


def _read(path: Path) -> Share:
    try:
        return read_json_as(path.read_bytes(), Share)
    except ValueError as error:
        raise HvdFtError(f"{path} is damaged ({error}): check the disk") from None


def _manifest(origin: Origin, cut: Cut, shares: list[Share]) -> Manifest:
    parts = [part for share in shares for part in share.parts]
    here = {part.rank for part in parts}
    # Where the other end has a directory of its own, it is asked when a job continues from here.
    for pair in messages_under_way(shares):
        if set(pair) <= here:
            raise HvdFtError(
                f"messages from rank {pair[0]} to rank {pair[1]} (ft_send) were under way at step "
                f"{_step(parts, cut)}, and a checkpoint has none; the next one is tried as usual"
            )
    return Manifest(
        format=FORMAT,
        version=VERSION,
        software=f"hvd_ft {__version__}",
        job=origin.job,
        run=origin.run,
        begun=origin.begun,
        written=round(time.time(), 3),
        size=max(share.size for share in shares) or origin.place.size,
        nodes=origin.place.nodes,
        apart=origin.apart,
        loop=cut.loop,
        step=_step(parts, cut),
        cut=cut.number,
        shares=shares,
    )


def _step(parts: Sequence[Part], cut: Cut) -> int:
    for part in parts:
        if (part.loop, part.cut) == (cut.loop, cut.number):
            return part.step
    raise HvdFtError(f"no node's share has {cut}: they are damaged, check the disk")
