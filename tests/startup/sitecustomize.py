"""Python runs this first in every process that the tests start: they import TensorFlow some 300
times, and a sixth of an import's time would go into collections of garbage that find none.
"""

import gc
import sys
from typing import Any


class _NoCollectionsMeanwhile:
    """Asked by Python where modules are, it knows of none."""

    @staticmethod
    def find_spec(name: str, _path: Any = None, _target: Any = None) -> None:
        if name == "tensorflow":
            gc.disable()
        elif name == "hvd_ft.tensorflow.basics":  # imported after it
            gc.enable()


sys.meta_path.insert(0, _NoCollectionsMeanwhile)
