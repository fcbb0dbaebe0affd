"""How the two ends of a life-line prove to each other that they know the job's key. Pure.

Each end sends random bytes, and the other end answers with their digest under the key. Before that,
either end may be anybody, so these messages are short and have no other fields.

launcher: Challenge         shim: Claim
launcher: Confirmation
"""

import hmac
from typing import Annotated

import msgspec

from hvd_ft.system.wire import Message, unpack_as

MOST_BYTES = 4096  # of such a message
_Nonce = Annotated[str, msgspec.Meta(max_length=128)]
_Digest = Annotated[str, msgspec.Meta(max_length=64, pattern="^[0-9a-f]*$")]


class Challenge(msgspec.Struct, forbid_unknown_fields=True):
    """The launcher's random bytes."""

    nonce: _Nonce


class Claim(msgspec.Struct, forbid_unknown_fields=True):
    """The shim's random bytes, and its proof."""

    nonce: _Nonce
    proof: _Digest


class Confirmation(msgspec.Struct, forbid_unknown_fields=True):
    """The launcher's proof."""

    proof: _Digest


def claim(key: str, challenge: bytes, nonce: str) -> Message:
    """Answers a launcher's first message.

    Args:
        key: of the job.
        challenge: the message.
        nonce: the shim's random bytes.

    Returns:
        The shim's first message.

    Raises:
        ValueError: it is no such message.
    """
    theirs = unpack_as(challenge, Challenge).nonce
    return {"nonce": nonce, "proof": proof(key, "shim", theirs)}


def confirm(key: str, claimed: bytes, nonce: str) -> Message:
    """Answers a shim's first message.

    Args:
        key: of the job.
        claimed: the message.
        nonce: the launcher's random bytes.

    Returns:
        The launcher's second message.

    Raises:
        ValueError: it is no such message, or its sender does not know the key.
    """
    theirs = unpack_as(claimed, Claim)
    _check(theirs.proof, proof(key, "shim", nonce))
    return {"proof": proof(key, "launcher", theirs.nonce)}


def check_confirmation(key: str, confirmation: bytes, nonce: str) -> None:
    """Checks a launcher's second message.

    Args:
        key: of the job.
        confirmation: the message.
        nonce: the shim's random bytes.

    Raises:
        ValueError: it is no such message, or its sender does not know the key.
    """
    _check(unpack_as(confirmation, Confirmation).proof, proof(key, "launcher", nonce))


def proof(key: str, who: str, nonce: str) -> str:
    """Returns the proof of knowing the job's key.

    Args:
        key: that of the job.
        who: `shim` or `launcher`, so that a proof cannot be sent back to its sender.
        nonce: the other side's random bytes.
    """
    return hmac.digest(key.encode(), f"{who} {nonce}".encode(), "sha256").hex()


def _check(given: str, expected: str) -> None:
    if not hmac.compare_digest(given, expected):
        raise ValueError("this is not the job's key")
