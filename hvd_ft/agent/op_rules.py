"""The rules by which a job's ops are done, from its settings."""

from hvd_ft.agent.ablation import ablates_network
from hvd_ft.job.settings import Settings
from hvd_ft.native.types import OpRules


def op_rules(settings: Settings) -> OpRules:
    """Returns what the op log is to say of each op."""
    return OpRules(
        node_segment=settings.node_segment_bytes,
        most_gathered=settings.gather_bytes,
        ring_segment=settings.ring_segment_bytes,
        ablates_network=ablates_network(settings),
    )
