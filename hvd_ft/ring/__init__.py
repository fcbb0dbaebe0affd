"""A pipelined ring allreduce over Intel MPI, on any mpi4py communicator, without agents.

```python
import hvd_ft.ring

hvd_ft.ring.prepare()  # before mpi4py starts MPI
from mpi4py import MPI

with hvd_ft.ring.Ring(MPI.COMM_WORLD) as ring:
    ring.allreduce(array, "sum")  # in place, on every rank
```
"""

from hvd_ft.mpi.prepare import prepare
from hvd_ft.ring.ring import DTYPES, OPS, ORDERS, SEGMENT_BYTES, VARIANTS, Ring

__all__ = ["DTYPES", "OPS", "ORDERS", "SEGMENT_BYTES", "VARIANTS", "Ring", "prepare"]
