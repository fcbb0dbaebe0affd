"""`import hvd_ft.torch.lightning`: Lightning's Trainer in a job of `hvdft run`.

With `Trainer(strategy=DDPStrategy(process_group_backend="hvd_ft"))` rank, size and environment come
from the job, and a rank that dies is restarted while the others wait. The callback `Snapshots` has
it continue at the step where it died, instead of at the script's beginning.
"""

from hvd_ft.torch.lightning.environment import JobEnvironment
from hvd_ft.torch.lightning.job import adapt
from hvd_ft.torch.lightning.snapshots import Snapshots

__all__ = ["JobEnvironment", "Snapshots"]

adapt()
