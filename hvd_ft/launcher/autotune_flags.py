"""The flags of `hvdft run` for autotuning, with the names and variables of horovodrun."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from hvd_ft.errors import HvdFtError
from hvd_ft.system.command_line import Parser, whole

_AUTOTUNE = "HOROVOD_AUTOTUNE"
_VARIABLES = {
    "autotune_log_file": f"{_AUTOTUNE}_LOG",
    "autotune_warmup_samples": f"{_AUTOTUNE}_WARMUP_SAMPLES",
    "autotune_steps_per_sample": f"{_AUTOTUNE}_STEPS_PER_SAMPLE",
    "autotune_bayes_opt_max_samples": f"{_AUTOTUNE}_BAYES_OPT_MAX_SAMPLES",
    "autotune_gaussian_process_noise": f"{_AUTOTUNE}_GAUSSIAN_PROCESS_NOISE",
}


def _noise(text: str) -> float:
    try:
        noise = float(text)
    except ValueError:
        noise = -1.0
    if not 0 <= noise <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return noise


def add_autotune(run: Parser) -> None:
    """Adds the flags; all but the switch are for experts.

    Args:
        run: the parser that gets them.
    """
    group = run.add_argument_group("autotuning (docs/how-to/tuning.md#autotuning)")
    group.add_argument(
        "--autotune",
        action=argparse.BooleanOptionalAction,
        help="choose the fusion threshold while training runs",
    )
    run.expert(
        group.add_argument(
            "--autotune-log-file",
            metavar="FILE",
            help="write each threshold and its score as CSV; the last row has the best one",
        ),
        group.add_argument(
            "--autotune-warmup-samples",
            metavar="N",
            type=whole(0),
            help="discard N samples first (default: 3)",
        ),
        group.add_argument(
            "--autotune-steps-per-sample",
            metavar="N",
            type=whole(),
            help="measure over N steps five times; the median is a sample's score (default: 10)",
        ),
        group.add_argument(
            "--autotune-bayes-opt-max-samples",
            metavar="N",
            type=whole(0),
            help="then keep the best threshold (default: 20)",
        ),
        group.add_argument(
            "--autotune-gaussian-process-noise",
            metavar="X",
            type=_noise,
            help="how noisy scores are, 0 to 1 (default: 0.8)",
        ),
    )


def autotune_environment(options: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns what the flags set for autotuning, as Horovod's environment variables.

    Args:
        options: of the command line.
        environ: the environment to which they are added.

    Raises:
        HvdFtError: flags of autotuning are given without autotuning.
    """
    given = {flag: getattr(options, flag) for flag in _VARIABLES}
    found = {flag: str(value) for flag, value in given.items() if value is not None}
    switch = {} if options.autotune is None else {_AUTOTUNE: str(int(options.autotune))}
    if found and {**environ, **switch}.get(_AUTOTUNE, "0") in ("", "0"):
        flag = next(iter(found)).replace("_", "-")
        raise HvdFtError(f"--{flag} does nothing without autotuning; give --autotune as well")
    return {**{_VARIABLES[flag]: value for flag, value in found.items()}, **switch}
