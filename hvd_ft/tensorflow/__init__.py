"""`import hvd_ft.tensorflow as hvd`: all of horovod.tensorflow, and training that survives.

Ours are `State`, `ElasticSampler`, `callbacks` (Horovod's Keras callbacks and ours), `estimator`
(hooks for tf.estimator), `on_restart`, `on_peer_failure`, `on_peer_recovered`, `on_divergence`,
`incarnation`, `enabled` and `barrier`, which Horovod's TensorFlow binding lacks; `init` is
Horovod's, with preparations for the agent.
"""

# ruff: noqa: F401, F403 (this file is a list of names)

import importlib
from typing import Any

import horovod.tensorflow as _horovod
from horovod.tensorflow import *

from hvd_ft.native.types import Divergence
from hvd_ft.tensorflow import callbacks
from hvd_ft.tensorflow.basics import barrier, init
from hvd_ft.tensorflow.sampler import ElasticSampler
from hvd_ft.tensorflow.state import State
from hvd_ft.worker.begin import enabled, incarnation
from hvd_ft.worker.peer_hooks import (
    Peer,
    Restart,
    on_divergence,
    on_peer_failure,
    on_peer_recovered,
    on_restart,
)

import hvd_ft.tensorflow.keras  # isort: skip  # the star has brought Horovod's `keras`


def __getattr__(name: str) -> Any:
    if name == "estimator":  # imported on first use, as the import is slow
        return importlib.import_module("hvd_ft.tensorflow.estimator")
    return getattr(_horovod, name)  # not included in a star import
