"""Reads JSON that anybody, or a damaged disk, may have written."""

import json
from typing import Any


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
