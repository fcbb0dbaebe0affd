"""The example for Kubernetes: valid for the MPI operator, and it says what hvd_ft understands."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from conftest import ROOT

from hvd_ft import cli
from hvd_ft.installed.frameworks import TENSORFLOW_VERSION

FOLDER = ROOT / "examples" / "kubernetes"
SCHEMA = yaml.safe_load(Path(__file__).with_name("mpijob.schema.yaml").read_text())
JOB = yaml.safe_load((FOLDER / "mpijob.yaml").read_text())


def problems(job: Any) -> list[str]:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    found = jsonschema.Draft202012Validator(SCHEMA).iter_errors(job)
    return [f"{error.json_path}: {error.message}" for error in found]


def pods(job: Any) -> dict[str, Any]:
    replicas = job["spec"]["mpiReplicaSpecs"]
    return {name: each["template"]["spec"] for name, each in replicas.items()}


def test_the_example_is_valid() -> None:
    assert problems(JOB) == []


@pytest.mark.parametrize(
    ("spoil", "part"),
    [
        (lambda job: job["spec"].update(mpiImplementation="intel"), "'intel' is not one of"),
        (lambda job: job["spec"].update(slotsPerWorkers=2), "'slotsPerWorkers' was unexpected"),
        (lambda job: job["spec"].update(cleanPodPolicy="Running"), "'cleanPodPolicy' was"),
        (lambda job: job["spec"]["runPolicy"].update(cleanPodPolicy="Some"), "'Some' is not one"),
        (lambda job: job["spec"]["mpiReplicaSpecs"].pop("Launcher"), "'Launcher' is a required"),
        (lambda job: job["spec"]["mpiReplicaSpecs"]["Launcher"].update(replicas=2), "1 was exp"),
        (lambda job: job["spec"]["mpiReplicaSpecs"]["Worker"].update(replicas=0), "minimum of 1"),
        (lambda job: job["metadata"].update(name="Digits"), "'Digits' does not match"),
        (lambda job: pods(job)["Worker"].update(containers=[]), "[] should be non-empty"),
        (lambda job: pods(job)["Worker"]["volumes"][0].pop("emptyDir"), "does not have enough"),
        (lambda job: pods(job)["Worker"]["volumes"][0].update(persistentVolumeClaim={}), "too"),
        (
            lambda job: pods(job)["Worker"]["containers"][0]["resources"]["limits"].update(
                memory="4 GB"
            ),
            "'4 GB' does not match",
        ),
    ],
)
def test_what_is_not_valid_is_found(spoil: Callable[[Any], object], part: str) -> None:
    job = copy.deepcopy(JOB)
    spoil(job)
    assert any(part in problem for problem in problems(job)), problems(job)


def test_volumes_that_are_mounted_are_there() -> None:
    for pod in pods(JOB).values():
        names = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= names


def test_the_launcher_runs_what_hvdft_knows(capsys: pytest.CaptureFixture[str]) -> None:
    [launcher] = pods(JOB)["Launcher"]["containers"]
    [script] = launcher["args"]
    run = script[script.index("exec hvdft run") :].replace("\\\n", " ")
    with pytest.raises(SystemExit):
        cli.main(["run", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    flags = set(re.findall(r"--[a-z-]+", run))
    assert flags
    assert flags <= known
    assert not {"-np", "-H"} & set(run.split()), "the operator's host file says it"
    grace = re.search(r"--grace (\d+)", run)
    assert grace
    assert int(grace[1]) < pods(JOB)["Launcher"]["terminationGracePeriodSeconds"]
    [program] = re.findall(r"python /(\S+\.py)", run)
    assert (ROOT / program).is_file()


def test_workers_have_shared_memory() -> None:
    worker = pods(JOB)["Worker"]
    [memory] = [volume for volume in worker["volumes"] if volume["name"] == "memory"]
    assert memory["emptyDir"]["medium"] == "Memory"
    mounts = worker["containers"][0]["volumeMounts"]
    assert {"name": "memory", "mountPath": "/dev/shm"} in mounts


def test_the_image_has_what_the_job_needs() -> None:
    text = (FOLDER / "Containerfile").read_text()
    assert f"tensorflow-cpu=={TENSORFLOW_VERSION}" in text
    user = re.search(r"--home-dir /\w+ --uid (\d+) (\w+)", text)
    assert user
    for pod in pods(JOB).values():
        assert pod["containers"][0]["securityContext"]["runAsUser"] == int(user[1])
    assert JOB["spec"]["sshAuthMountPath"] == f"/{user[2]}/.ssh"
    assert f"HostKey {JOB['spec']['sshAuthMountPath']}/id_rsa" in text
    for name in re.findall(r"^COPY (?!--)(\S+) ", text, re.MULTILINE):
        assert (ROOT / name).exists()
