"""`hvd.estimator`: lets tf.estimator and monitored sessions continue after a failure.

Importing it makes `Estimator.train` begin at the same step on all ranks (`training`).
"""

# ruff: noqa: F401 (this file is a list of names)

import importlib.util

import tensorflow

from hvd_ft import errors

if importlib.util.find_spec("tensorflow_estimator") is None:
    raise errors.HvdFtError(
        f"tf.estimator ended with TensorFlow 2.15, and this is {tensorflow.__version__}; "
        "for Estimators and monitored sessions run: pip install tensorflow-cpu==2.15.1"
    )

from hvd_ft.tensorflow.estimator.epoch_timing import EpochTiming
from hvd_ft.tensorflow.estimator.fault_tolerance import FaultTolerance
from hvd_ft.tensorflow.estimator.memory import run_config
from hvd_ft.tensorflow.estimator.training import join_training

join_training()
