"""Flags from a file in the form of horovodrun's `--config-file`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hvd_ft.errors import HvdFtError
from hvd_ft.system.nearest import meant

_STARTS = {"stall_check": "stall-check-", "timeline": "timeline-", "autotune": "autotune-",
           "logging": "log-"}  # fmt: skip
_KEYS = {
    "params": (
        *("fusion_threshold_mb", "cycle_time_ms", "cache_capacity", "hierarchical_allreduce"),
        *("hierarchical_allgather", "torus_allreduce"),
    ),
    "autotune": (
        *("enabled", "log_file", "warmup_samples", "steps_per_sample", "bayes_opt_max_samples"),
        "gaussian_process_noise",
    ),
    "timeline": ("filename", "mark_cycles"),
    "stall_check": ("enabled", "warning_time_seconds", "shutdown_time_seconds"),
    "library_options": (
        *("mpi_threads_disable", "num_nccl_streams", "thread_affinity", "gloo_timeout_seconds"),
    ),
    "logging": ("level", "with_timestamp", "hide_timestamp"),
}


class ConfigFile(argparse.Action):
    """Reads the file; its flags do not override those of the command line."""

    def __call__(
        self, parser: Any, options: argparse.Namespace, path: Any, flag: str | None = None
    ) -> None:
        """As in argparse."""
        setattr(options, self.dest, path)
        words = list(config_words(path))
        known = {name for action in parser._actions for name in action.option_strings}
        for word in words:
            name = word.partition("=")[0]
            if name not in known:
                reason = parser.elsewhere.get(name, "it is not known")
                raise HvdFtError(f"--config-file {path} gives {name}: {reason}")
        read = parser.parse_args([*words, "--"])
        for name, value in vars(read).items():
            if name == "variables":  # the last one of a variable wins: the user's
                options.variables = (*value, *options.variables)
            elif name == "without_effect":
                options.without_effect = (*options.without_effect, *value)
            elif getattr(options, name, None) is None:
                setattr(options, name, value)


def config_words(path: str) -> Iterator[str]:
    """Yields the words of a command line that say the same as a file.

    Args:
        path: of the file.

    Raises:
        HvdFtError: it cannot be read, or says something that horovodrun does not know.
    """
    for section, found in _read(path).items():
        if section == "controller":
            yield _controller(path, found)
        elif section not in _KEYS:
            hint = meant(str(section), [*_KEYS, "controller"]) or "remove it"
            raise HvdFtError(f"--config-file {path} has no part {section} in horovodrun: {hint}")
        elif not isinstance(found, Mapping):
            raise HvdFtError(f"--config-file {path}: {section} has no entries; give some, or none")
        elif section == "autotune" and not found.get("enabled"):
            yield "--no-autotune"  # horovodrun ignores the other entries too
        else:
            for key, value in found.items():
                if key not in _KEYS[section]:
                    hint = meant(str(key), _KEYS[section]) or "remove it"
                    raise HvdFtError(
                        f"--config-file {path}: horovodrun has no {section}.{key}: {hint}"
                    )
                if value is not None:
                    yield _word(section, key, value)


def _read(path: str) -> Mapping[Any, Any]:
    import yaml

    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise HvdFtError(
            f"cannot read --config-file {path} ({error.strerror}); give a YAML file of horovodrun's"
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise HvdFtError(f"--config-file {path} is not YAML ({reason}); correct it") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise HvdFtError(
            f"--config-file {path} has no parts such as params or autotune; give a YAML file of "
            "horovodrun's"
        )
    return found


def _controller(path: str, name: Any) -> str:
    known = ("mpi", "gloo")
    if str(name).lower() not in known:
        raise HvdFtError(f"--config-file {path}: {name!r} is not a controller; give mpi, or none")
    return f"--{str(name).lower()}"


def _word(section: str, key: str, value: Any) -> str:
    """Returns the flag for an entry, with its value if it is not a switch."""
    if key == "enabled":
        return f"--{'' if value else 'no-'}{section.replace('_', '-')}"
    if key == "hide_timestamp":
        return f"--log-{'without' if value else 'with'}-timestamp"
    if key == "with_timestamp":
        return f"--log-{'with' if value else 'without'}-timestamp"
    name = f"{_STARTS.get(section, '')}{key.replace('_', '-')}"
    if isinstance(value, bool):
        return f"--{'' if value else 'no-'}{name}"
    return f"--{name}={value}"
