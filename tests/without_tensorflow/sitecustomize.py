"""In PYTHONPATH it has warm spares import nothing that takes time, or import for ever."""

import os
import signal
import sys
from types import ModuleType

if "hvd_ft.spares.spare" in sys.orig_argv:
    for _name in ("tensorflow", "hvd_ft.tensorflow.keras"):
        sys.modules[_name] = ModuleType(_name)
    if "SPARES_NEVER_READY" in os.environ:
        signal.pause()
