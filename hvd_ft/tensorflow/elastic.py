"""`hvd.elastic`: the names of Horovod Elastic, so that its scripts run under an agent too.

Without an agent they are Horovod's own.
"""

from typing import Any

from horovod.tensorflow import elastic as _horovod
from horovod.tensorflow.keras import elastic as _horovod_keras

from hvd_ft import native
from hvd_ft.tensorflow import elastic_callbacks, elastic_state
from hvd_ft.tensorflow.sampler import ElasticSampler

_OURS: dict[str, Any] = {
    "run": elastic_state.run,
    "TensorFlowState": elastic_state.TensorFlowState,
    "TensorFlowKerasState": elastic_state.TensorFlowKerasState,
    "KerasState": elastic_state.KerasState,
    "CommitStateCallback": elastic_callbacks.CommitStateCallback,
    "UpdateBatchStateCallback": elastic_callbacks.UpdateBatchStateCallback,
    "UpdateEpochStateCallback": elastic_callbacks.UpdateEpochStateCallback,
}
__all__ = ["ElasticSampler", *_OURS]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    # Where it is used, not where it is imported: a warm spare imports it without an agent.
    if name in _OURS and native.in_job():
        return _OURS[name]
    return getattr(_horovod if hasattr(_horovod, name) else _horovod_keras, name)
