"""`import hvd_ft.torch as hvd`: all of horovod.torch, and training that survives.

Ours are `State`, `ElasticSampler`, `on_restart`, `on_peer_failure`, `on_peer_recovered`,
`on_divergence`, `incarnation` and `enabled`, which Horovod's PyTorch binding lacks; `init` is
Horovod's, with preparations for the agent.
"""

# ruff: noqa: F401, F403 (this file is a list of names)

from typing import Any

import horovod.torch as _horovod
from horovod.torch import *

from hvd_ft.native.types import Divergence
from hvd_ft.torch.basics import init
from hvd_ft.torch.sampler import ElasticSampler
from hvd_ft.torch.state import State
from hvd_ft.worker.begin import enabled, incarnation
from hvd_ft.worker.peer_hooks import (
    Peer,
    Restart,
    on_divergence,
    on_peer_failure,
    on_peer_recovered,
    on_restart,
)


def __getattr__(name: str) -> Any:
    return getattr(_horovod, name)  # not included in a star import
