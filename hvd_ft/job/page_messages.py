"""The messages between the launcher and the process of the status page, as JSON, one a packet.

The process of the page answers strangers, so the launcher takes nothing from it but the request to
kill a rank's worker, which a job survives.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hvd_ft.system.json_text import read_json_as

LinkKind = Literal["ring", "ring_back", "gather", "mirror"]
LinkState = Literal["open", "stalled", "unknown"]


class LinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of a link between two nodes, as the launcher's watch of links knows it.

    Attributes:
        source: the node that sends: its host's name, or `rank N` where every rank is a node.
        dest: the node that receives.
        kind: what travels over it: `ring`: sums, to the successor; `ring_back`: how far the
            successor has come, to its predecessor; `gather`: gathered ops; `mirror`: the op log,
            snapshots and messages.
        state: `open`: transfers arrive, or none is under way; `stalled`: one is under way and
            nothing arrives; `unknown`: the host of an end does not answer.
        transfers: that have arrived since this generation of agents began.
        stalled_seconds: for how long nothing has arrived; 0 unless the link is stalled.
    """

    source: str
    dest: str
    kind: LinkKind
    state: LinkState
    transfers: int
    stalled_seconds: float


class _ToPage(msgspec.Struct, frozen=True, tag_field="launcher"):
    """From the launcher."""


class _FromPage(msgspec.Struct, frozen=True, tag_field="page"):
    """From the process of the page."""


class Follow(_ToPage, frozen=True):
    """Show the job with this directory on this host."""

    directory: str


class Links(_ToPage, frozen=True):
    """The present state of the links."""

    links: list[LinkStatus]


class KillAnswer(_ToPage, frozen=True):
    """The answer to `Kill`.

    Attributes:
        number: of the request.
        problem: why the worker is not killed; "": its shim has been asked to.
    """

    number: int
    problem: str


class Kill(_FromPage, frozen=True):
    """Kill a rank's worker.

    Attributes:
        number: of this request.
        rank: whose.
    """

    number: int
    rank: int


ToPage = Follow | Links | KillAnswer


def parse_to_page(packet: bytes) -> ToPage:
    """Reads a message of the launcher.

    Raises:
        ValueError: it is none.
    """
    message: ToPage = read_json_as(packet, ToPage)  # type: ignore[arg-type]
    return message


def parse_from_page(packet: bytes) -> Kill:
    """Reads a message of the page's process.

    Raises:
        ValueError: it is none.
    """
    return read_json_as(packet, Kill)


def to_packet(message: ToPage | Kill) -> bytes:
    """Returns a message as JSON."""
    return msgspec.json.encode(message)
