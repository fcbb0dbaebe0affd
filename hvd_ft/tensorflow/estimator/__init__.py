"""`hvd.estimator`: lets tf.estimator and monitored sessions continue after a failure.

Importing it makes `Estimator.train` begin at the same step on all ranks (`training`).
"""

# ruff: noqa: F401 (this file is a list of names)

from hvd_ft.tensorflow.estimator.epoch_timing import EpochTiming
from hvd_ft.tensorflow.estimator.fault_tolerance import FaultTolerance
from hvd_ft.tensorflow.estimator.memory import run_config
from hvd_ft.tensorflow.estimator.training import join_training

join_training()
