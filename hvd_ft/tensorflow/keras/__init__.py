"""`import hvd_ft.tensorflow.keras as hvd`: horovod.tensorflow.keras and additions."""

# ruff: noqa: F401, F403 (this file is a list of names)

from typing import Any

import horovod.tensorflow.keras as _horovod
from horovod.tensorflow.keras import *

from hvd_ft.tensorflow import callbacks
from hvd_ft.tensorflow.basics import barrier, init
from hvd_ft.tensorflow.sampler import ElasticSampler
from hvd_ft.tensorflow.state import State
from hvd_ft.worker.begin import enabled, incarnation
from hvd_ft.worker.peer_hooks import Peer, Restart, on_peer_failure, on_peer_recovered, on_restart


def __getattr__(name: str) -> Any:
    return getattr(_horovod, name)  # not included in a star import
