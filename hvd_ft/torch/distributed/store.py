"""The store of the process groups: each rank's own, as none survives the death of rank 0.

The backend itself needs none. What waits in one for another rank's key would wait in vain, so it
gets an error at once.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch.distributed as dist

from hvd_ft.errors import HvdFtError


class OwnStore(dist.Store):
    """Keeps what this rank sets; raises HvdFtError for any other key instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self._kept = dist.HashStore()

    def set(self, key: str, value: Any) -> None:
        """Sets a value."""
        self._kept.set(key, value)

    def get(self, key: str) -> bytes:
        """Returns a value."""
        self._require(key)
        return bytes(self._kept.get(key))

    def add(self, key: str, amount: int) -> int:
        """Adds to a number, 0 at first; returns it."""
        return int(self._kept.add(key, amount))

    def check(self, keys: Sequence[str]) -> bool:
        """Returns whether all keys are set."""
        return bool(self._kept.check(list(keys)))

    def wait(self, keys: Sequence[str], timeout: Any = None) -> None:
        """Returns if all keys are set."""
        for key in keys:
            self._require(key)

    def deleteKey(self, key: str) -> bool:
        """Deletes a key, which PyTorch asks for by this name; returns whether it was set."""
        return bool(self._kept.delete_key(key))

    def _require(self, key: str) -> None:
        if not self._kept.check([key]):
            raise HvdFtError(
                f"the key {key!r} is not in this rank's store, and with hvd_ft.torch.distributed "
                "each rank has its own: exchange values by collectives, and give "
                "init_process_group an init_method for another backend than hvd_ft"
            )


@cache
def own_store() -> OwnStore:
    """Returns the process's store. PyTorch keeps only its C++ part, so it is kept here."""
    return OwnStore()


def is_own(store: dist.Store) -> bool:
    """Returns whether a store is the process's, under whichever prefixes."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return store is own_store()
