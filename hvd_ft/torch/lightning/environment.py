"""What Lightning asks about the processes of a job."""

from lightning.fabric.plugins.environments import ClusterEnvironment

import hvd_ft.torch as hvd
from hvd_ft import native
from hvd_ft.errors import HvdFtError
from hvd_ft.torch.distributed.rendezvous import begin


class JobEnvironment(ClusterEnvironment):
    """Ranks as the job has them; the Trainer gets one by itself in a job of `hvdft run`.

    Lightning documents the functions.

    Raises:
        HvdFtError: there is no agent.
    """

    def __init__(self) -> None:
        begin()

    @staticmethod
    def detect() -> bool:
        """Returns whether an agent has started this process."""
        return native.in_job()

    @property
    def creates_processes_externally(self) -> bool:
        """Lightning has to start none."""
        return True

    @property
    def main_address(self) -> str:
        """Not used: ranks find each other by the job."""
        return "localhost"

    @property
    def main_port(self) -> int:
        """Likewise."""
        return 0

    def world_size(self) -> int:
        """Returns the number of ranks."""
        return int(hvd.size())

    def set_world_size(self, size: int) -> None:
        """Does nothing: the job has decided that."""

    def global_rank(self) -> int:
        """Returns this process's rank."""
        return int(hvd.rank())

    def set_global_rank(self, rank: int) -> None:
        """Does nothing, likewise."""

    def local_rank(self) -> int:
        """Returns its rank among those of its host."""
        return int(hvd.local_rank())

    def node_rank(self) -> int:
        """Returns the number of its host."""
        return int(hvd.cross_rank())

    def validate_settings(self, num_devices: int, num_nodes: int) -> None:
        """Checks that the Trainer does not ask for another number of ranks.

        Raises:
            HvdFtError: it does.
        """
        by_host = num_nodes == 1 and num_devices == hvd.local_size()  # devices="auto"
        if num_devices * num_nodes != hvd.size() and not by_host:
            raise HvdFtError(
                f"Trainer(devices={num_devices}, num_nodes={num_nodes}) is for "
                f"{num_devices * num_nodes} ranks, but the job has {hvd.size()}: leave devices= "
                "and num_nodes= out, and say how many by 'hvdft run -np'"
            )
