"""Replacements for the flags of horovodrun that `hvdft run` does not have."""

# The flags of one line share an answer.
_ANSWERS = {
    "--gloo": "hvd_ft always uses MPI; leave it out",
    "--mpi --jsrun": "hvd_ft always uses Intel MPI; leave it out",
    "--hostfile": "give the hosts by -H, as in -H n0:4,n1:2",
    "--network-interfaces": "give one interface by --network-interface",
    "-p --ssh-port -i --ssh-identity-file": "write it into ~/.ssh/config",
    "--start-timeout": "set HOROVOD_FT_START_TIMEOUT_SECONDS",
    "--output-filename -prefix-timestamp --prefix-output-with-timestamp": "redirect the output of "
    "hvdft run",
    "-cb --check-build": "use hvdft check",
    "-v --version": "use hvdft --version",
    "--config-file": "give the flags, or set variables",
    "--mpi-args --binding-args --tcp --mpi-threads-disable --no-mpi-threads-disable": "use "
    "--bind-to, --network-interface, or variables of Intel MPI (I_MPI_...)",
    "--thread-affinity": "use --bind-to",
    "--reset-limit": "set HOROVOD_FT_MAX_FAILURES",
    "--fusion-threshold-mb": "set HOROVOD_FUSION_THRESHOLD, in bytes",
    "--timeline-filename": "set HOROVOD_TIMELINE",
    "--timeline-mark-cycles --no-timeline-mark-cycles": "set HOROVOD_TIMELINE_MARK_CYCLES",
    "--stall-check --no-stall-check": "set HOROVOD_STALL_CHECK_DISABLE",
    "--stall-check-warning-time-seconds": "set HOROVOD_STALL_CHECK_TIME_SECONDS",
    "--stall-check-shutdown-time-seconds": "set HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
    "--log-level": "set HOROVOD_LOG_LEVEL",
    "--log-with-timestamp --log-hide-timestamp --no-log-hide-timestamp --log-without-timestamp": (
        "set HOROVOD_LOG_HIDE_TIME"
    ),
    "--cycle-time-ms --cache-capacity --disable-cache --gloo-timeout-seconds --num-nccl-streams "
    "--hierarchical-allreduce --no-hierarchical-allreduce --hierarchical-allgather "
    "--no-hierarchical-allgather --torus-allreduce --no-torus-allreduce": "it has no "
    "effect on the ft backend; leave it out",
}

INSTEAD = {flag: answer for flags, answer in _ANSWERS.items() for flag in flags.split()}
