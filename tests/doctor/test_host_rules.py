"""What is found of one host: of each rule, facts that are nearly enough and facts that are not."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from hvd_ft.doctor import host_rules, limit_rules, model_rules
from hvd_ft.doctor.facts import HostFacts, Limits, Memory, Network, Ring
from hvd_ft.doctor.finding import ERROR, NOTE, WARNING, Finding, gathered
from hvd_ft.doctor.limit_rules import CHEAP, LIMIT_RULES
from hvd_ft.doctor.model_rules import MODEL_RULES, Model

GIB = 1 << 30
WELL = Limits(
    ranks=4,
    cpus=8,
    open_files=1024,
    processes=4096,
    group_processes=4096,
    memory=64 * GIB,
    arena=32 * GIB,
)
FAST = Network(
    "", "", devices=["mlx5_0"], device_files=["uverbs0"], adapters=["0000:01:00.0"], driver=True
)

# Of each rule the facts that are nearly enough, and those that are not.
LIMITS = [
    (limit_rules.open_files, {"open_files": 68}, {"open_files": 67}, ERROR),
    (limit_rules.processes, {"processes": 216}, {"processes": 215}, WARNING),
    (limit_rules.processes, {"processes": None}, {"processes": 11}, ERROR),
    (limit_rules.group_processes, {"group_processes": 216}, {"group_processes": 12}, WARNING),
    (limit_rules.host_memory, {"memory": 1536 << 20}, {"memory": 1535 << 20}, WARNING),
    (limit_rules.group_memory, {"group_memory": None}, {"group_memory": 0}, WARNING),
    (limit_rules.cpu_share, {"cpu_quota": 4.0}, {"cpu_quota": 3.9}, WARNING),
    (limit_rules.cpu_share, {"cpu_quota": 2.0, "cpus": 2}, {"cpu_quota": 1.0, "cpus": 2}, WARNING),
    (limit_rules.cpu_quota, {"cpu_quota": 8.0}, {"cpu_quota": 4.0}, WARNING),
    (limit_rules.cpu_quota, {"cpu_quota": 3.0}, {"cpu_quota": 7.9}, WARNING),  # cpu_share has it
    (
        limit_rules.throttled,
        {"throttled": 99, "periods": 99},
        {"throttled": 5, "periods": 100},
        WARNING,
    ),
    (
        limit_rules.throttled,
        {"throttled": 4, "periods": 100},
        {"throttled": 99, "periods": 999},
        WARNING,
    ),
    (limit_rules.crowded, {"ranks": 8}, {"ranks": 9}, NOTE),
]


@pytest.mark.parametrize(("rule", "enough", "too_little", "severity"), LIMITS)
def test_a_limit(
    rule: limit_rules.LimitRule,
    enough: dict[str, int],
    too_little: dict[str, int],
    severity: str,
) -> None:
    assert rule(replace(WELL, **enough)) is None
    found = rule(replace(WELL, **too_little))
    assert found and found.severity == severity
    check_text(found)


def check_text(found: Finding) -> None:
    """It says what, why and what to do, and is one line."""
    assert found.what and found.why and found.remedy
    assert "\n" not in found.line
    assert found.line == f"{found.what}: {found.why}; {found.remedy}"


def test_every_rule_has_a_test_and_an_id_of_its_own() -> None:
    tested = {rule for rule, *_ in LIMITS} | {rule for rule, *_ in HOSTS}
    assert tested == {*LIMIT_RULES, *host_rules.HOST_RULES}
    assert set(CHEAP) <= set(LIMIT_RULES)
    found = [rule(replace(WELL, **facts)) for rule, _, facts, _ in LIMITS]
    of_rules = {(rule, each.id) for (rule, *_), each in zip(LIMITS, found, strict=True) if each}
    assert len({kind for _, kind in of_rules}) == len(LIMIT_RULES)


def test_nothing_is_wrong_with_a_host_that_has_enough() -> None:
    assert host_rules.judge(HostFacts("n0", WELL, FAST, mpis=["/opt/mpi"])) == []


def network(**facts: object) -> HostFacts:
    return HostFacts("n0", WELL, replace(FAST, **facts))  # type: ignore[arg-type]


HOSTS: list[tuple[host_rules.HostRule, HostFacts, HostFacts, str]] = [
    (
        host_rules.several_mpis,
        HostFacts("n0", mpis=["/opt/intel"]),
        HostFacts("n0", mpis=["/opt/intel", "/usr"]),
        "/opt/intel, /usr",
    ),
    (
        host_rules.hidden_infiniband,
        network(adapters=[], devices=[]),
        network(devices=[]),
        "no driver has them",
    ),
    (
        host_rules.hidden_infiniband,
        network(),
        network(devices=[], container=True),
        "the container does not see them",
    ),
    (
        host_rules.infiniband_without_files,
        network(devices=[], device_files=[]),
        network(device_files=[]),
        "mlx5_0, but no file",
    ),
    (
        host_rules.infiniband_without_library,
        network(device_files=[], driver=False),
        network(driver=False),
        "uverbs0, but libibverbs",
    ),
    (
        host_rules.locked_memory,
        network(locked_memory=GIB),
        network(locked_memory=8 << 20),
        "lock 8192 KiB",
    ),
    (
        host_rules.locked_memory,
        network(locked_memory=64 << 10, device_files=[]),
        network(locked_memory=64 << 10),
        "lock 64 KiB",
    ),
    (
        host_rules.numa_policy,
        HostFacts("n0", memory=Memory(2, "bind:0")),
        HostFacts("n0", memory=Memory(2, "interleave:0-1")),
        "is interleave:0-1, neither",
    ),
    (
        host_rules.numa_nodes,
        HostFacts("n0", memory=Memory(1)),
        HostFacts("n0", memory=Memory(2)),
        "2 NUMA nodes",
    ),
]


@pytest.mark.parametrize(("rule", "well", "wrong", "part"), HOSTS)
def test_a_host(rule: host_rules.HostRule, well: HostFacts, wrong: HostFacts, part: str) -> None:
    assert rule(well) is None
    found = rule(wrong)
    assert found and part in found.what
    check_text(found)
    assert found in host_rules.judge(wrong)


@pytest.mark.parametrize(
    ("rule", "well", "wrong"),
    [
        (
            host_rules.provider_without_endpoints,
            {"FI_PROVIDER": "^mlx"},
            {"I_MPI_OFI_PROVIDER": "mlx"},
        ),
        (host_rules.unsplit, {"I_MPI_THREAD_SPLIT": "1"}, {"I_MPI_THREAD_SPLIT": "off"}),
        (
            host_rules.debug_library,
            {"I_MPI_LIBRARY_KIND": "release_mt"},
            {"I_MPI_LIBRARY_KIND": "debug_mt"},
        ),
    ],
)
def test_a_variable(
    rule: Callable[[dict[str, str]], Finding | None], well: dict[str, str], wrong: dict[str, str]
) -> None:
    assert rule(well) is None
    assert rule({}) is None
    found = rule(wrong)
    assert found
    check_text(found)


def test_what_mpi_has_given_a_real_job() -> None:
    assert [rule(Ring(3, 6)) for rule in host_rules.RING_RULES] == [None, None]
    unsplit = host_rules.threads_not_split(Ring(1, 1, "the provider mlx has none"))
    assert unsplit and "the provider mlx has none" in unsplit.what
    assert unsplit.severity == WARNING
    assert host_rules.one_endpoint_in_use(Ring(1, 1)) is None
    few = host_rules.one_endpoint_in_use(Ring(1, 6, "2 CPUs for 2 ranks"))
    assert few and (few.severity, few.why) == (NOTE, "2 CPUs for 2 ranks")


def test_a_part_that_is_absent_has_its_remedy() -> None:
    found = host_rules.absent("Horovod is not installed; run 'hvdft build-horovod'")
    assert (found.severity, found.what) == (ERROR, "Horovod is not installed")
    assert found.remedy == "run 'hvdft build-horovod'"
    assert host_rules.absent("two ranks failed").what == "two ranks failed"
    assert host_rules.judge(HostFacts("n0", WELL, wrong=["it is absent; install it"]))


def test_a_model() -> None:
    """100 million parameters: 2 snapshots of 1.2 GB, 7 steps of 0.4 GB; 4 ranks of 1.6 GB."""
    model = Model(100_000_000)
    need = model_rules.arena_need(WELL, model)
    assert need.state == 2 * 12 * model.params
    assert need.log == 7 * 4 * model.params
    total = need.total
    fits = replace(WELL, arena=-(-total * 4 // 3), memory=total + 4 * (384 << 20) + 64 * 10**8)
    assert [rule(fits, model) for rule in MODEL_RULES] == [None, None]
    small = replace(fits, arena=fits.arena - 4)
    found = model_rules.model_arena(small, model)
    assert found and "100,000,000 parameters on 4 ranks" in found.what
    assert model_rules.model_arena(small, replace(model, arena_bytes=total)) is None
    assert model_rules.model_arena(fits, replace(model, arena_bytes=total - 1))
    assert model_rules.model_arena(fits, replace(model, nodes=2))  # a second place between nodes
    for lack in ({"memory": fits.memory - 1}, {"group_memory": fits.memory - 1}):
        found = model_rules.model_memory(replace(fits, **lack), model)
        assert found
        check_text(found)
    on_disk = replace(fits, memory=fits.memory - total, arena_in_memory=False)
    assert model_rules.model_memory(on_disk, model) is None


def test_what_is_equal_on_several_hosts_is_said_once_and_the_gravest_first() -> None:
    one, other = (Finding(kind, kind, "w", "y", "r") for kind in (NOTE, ERROR))
    found = gathered([one.on("n0"), other.on("n1"), one.on("n2"), one])
    assert found == [other.on("n1"), one.on("n0", "n2")]
    assert found[1].line == "n0, n2: w: y; r"
