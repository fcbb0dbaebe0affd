"""Reads JSON that anybody, or a damaged disk, may have written."""

import json
from typing import Any, TypeVar

Kind = TypeVar("Kind")


def read_json(text: str | bytes) -> Any:
    """Reads JSON.

    Raises:
        ValueError: it is none, or it is nested too deeply, for which json has an error that is no
            ValueError.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json_as(text: bytes, kind: type[Kind]) -> Kind:
    """Reads JSON of a kind, and nothing else: nothing is built that has no place.

    Args:
        text: what anybody, or a damaged disk, may have written.
        kind: a msgspec.Struct, a dataclass, or a container of plain data with its types.

    Raises:
        ValueError: it is none; the field is named.
    """
    import msgspec  # which the environment may lack, when it is checked

    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None
