"""`HOROVOD_FT_ABLATE`: a job without its network, to measure what the network costs."""

from hvd_ft.errors import HvdFtError
from hvd_ft.job.placement import Nodes
from hvd_ft.job.settings import Settings

WARNING = (
    "HOROVOD_FT_ABLATE=network: FOR MEASUREMENT ONLY. No sum leaves its node, so every node trains "
    "its own model, and the trained weights are useless"
)


def ablates_network(settings: Settings) -> bool:
    """Returns whether sums stay on their nodes."""
    return settings.ablate == "network"


def check_ablation(settings: Settings, hosts: Nodes) -> None:
    """Checks that there is a network that can be left out.

    Args:
        settings: the user's.
        hosts: the ranks of each host.

    Raises:
        HvdFtError: there is none, or a check of the results would stop the job.
    """
    if not ablates_network(settings):
        return
    if len(hosts) == 1 and settings.topology != "flat":
        raise HvdFtError(
            "HOROVOD_FT_ABLATE=network: all ranks are on one host, so no sum crosses a network; "
            "give several hosts, or --topology flat, where each rank counts as a node"
        )
    if settings.on_divergence == "stop":
        raise HvdFtError(
            "HOROVOD_FT_ABLATE=network makes variables diverge, and HOROVOD_FT_ON_DIVERGENCE=stop "
            "would stop the job: set that to off"
        )
