"""`import hvd_ft.torch.accelerate`: Hugging Face Accelerate in a job of `hvdft run`.

`Accelerator(cpu=True)` then takes ranks and backend from the job, and a rank that dies is restarted
while the others wait. With `State` it continues at the step where it died, instead of at the
script's beginning.
"""

from hvd_ft.torch.accelerate.job import adapt
from hvd_ft.torch.accelerate.state import State

__all__ = ["State"]

adapt()
