"""What Prometheus scrapes."""

import msgspec
from job_statuses import job, rank
from prometheus_client.parser import text_string_to_metric_families

from hvd_ft.page.metrics import metrics_page
from hvd_ft.status.snapshot import Checkpoints, JobStatus


def values(status: JobStatus | None) -> dict[tuple[str, ...], float]:
    """Returns the values by name and labels, without the job's."""
    text = metrics_page(status).decode()
    return {
        (sample.name, *(v for k, v in sorted(sample.labels.items()) if k != "job_id")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_ranks_and_job() -> None:
    ranks = [
        rank(0, snapshots=msgspec.structs.replace(rank(0).snapshots, count=7)),
        rank(1, state="replaying", incarnation=2, steps_per_second=None, host=None),
    ]
    found = values(job(*ranks, checkpoints=Checkpoints(written=2, latest_seconds_ago=1.5)))
    assert found["hvdft_job_state", "running"] == 1 and found["hvdft_job_state", "dead"] == 0
    assert found["hvdft_job_ranks",] == 2 and found["hvdft_job_step",] == 250
    assert found["hvdft_log_ops_total",] == 500 and found["hvdft_log_held_ops",] == 40
    assert found["hvdft_checkpoints_total",] == 2 and found["hvdft_checkpoint_age_seconds",] == 1.5
    assert found["hvdft_rank_state", "", "1", "replaying"] == 1
    assert found["hvdft_rank_state", "n0", "0", "replaying"] == 0
    assert found["hvdft_rank_restarts_total", "", "1"] == 2
    assert found["hvdft_rank_snapshots_total", "n0", "0"] == 7
    assert found["hvdft_rank_wait_seconds_total", "n0", "0"] == 3
    assert found["hvdft_rank_steps_per_second", "n0", "0"] == 12.5
    assert ("hvdft_rank_steps_per_second", "", "1") not in found  # not known
    assert found["hvdft_memory_limit_bytes", "0"] == 2 << 30
    assert found["hvdft_memory_bytes", "0", "messages"] == 0


def test_what_is_not_known_is_left_out() -> None:
    assert values(None) == {}
    assert ("hvdft_checkpoint_age_seconds",) not in values(job(rank(0)))


def test_names_have_units_and_texts() -> None:
    """By Prometheus's conventions: base units, `_total` for what only grows."""
    for family in text_string_to_metric_families(metrics_page(job(rank(0))).decode()):
        assert family.name.startswith("hvdft_") and family.documentation.endswith(".")
        assert not family.name.endswith(("_ms", "_mb", "_kib", "_minutes"))
        assert {sample.labels["job_id"] for sample in family.samples} <= {"k3j0a1"}
