"""`import hvd_ft.torch.distributed`: the backend "hvd_ft" of torch.distributed.

In a job of `hvdft run`, `dist.init_process_group("hvd_ft")` is all that a script needs: rank, size
and store come from the job. A rank that dies is restarted, and the others wait.
"""

from hvd_ft.torch.distributed.group import FtGroup
from hvd_ft.torch.distributed.rendezvous import register

__all__ = ["FtGroup"]

register()
