"""`hvdft checkpoint`: lists, verifies and exports the checkpoints of a directory."""

import argparse
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hvd_ft.checkpoint.catalogue import Checkpoint, damage, find
from hvd_ft.errors import HvdFtError
from hvd_ft.system.command_line import AddCommand
from hvd_ft.system.say import answer, say

EXIT_NOT_WHOLE = 2
_MIB = 1 << 20
_WIDTH = 220  # a narrow terminal wraps lines; names stay whole


def add_checkpoint(commands: Any, add: AddCommand) -> None:
    """Adds `checkpoint` and its commands to the command line.

    Args:
        commands: the place to add them to.
        add: makes a command's parser from its place, name, help and example.
    """
    root = add(
        commands, "checkpoint", "look at the checkpoints of jobs", "hvdft checkpoint list out/ckpt"
    )
    kinds = root.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=type(root)
    )
    text = "list the checkpoints in a directory; ends with code 2 if none is complete"
    show = add(kinds, "list", text, "hvdft checkpoint list out/ckpt")
    show.add_argument("directory", metavar="DIR", type=Path, help="that of --checkpoint-dir")
    show.set_defaults(handler=_list)
    text = "compare the files of checkpoints with the hashes in their manifests"
    verify = add(kinds, "verify", text, "hvdft checkpoint verify out/ckpt")
    verify.add_argument(
        "directory", metavar="DIR", type=Path, help="that of --checkpoint-dir, or one checkpoint"
    )
    verify.set_defaults(handler=_verify)
    text = "write the variables of a checkpoint to a file, by their names"
    export = add(
        kinds, "export", text, "hvdft checkpoint export out/ckpt --output weights.safetensors"
    )
    export.add_argument(
        "directory",
        metavar="DIR",
        type=Path,
        help="that of --checkpoint-dir: its newest complete checkpoint; or one checkpoint",
    )
    export.add_argument(
        "--output",
        metavar="FILE",
        type=Path,
        required=True,
        help="a name that ends in .npz (NumPy) or .safetensors",
    )
    export.add_argument("--rank", type=int, default=0, metavar="R", help="whose (default: 0)")
    export.add_argument(
        "--loop", type=int, metavar="N", help="training loop, from 0 (default: the latest one)"
    )
    export.add_argument(
        "--only",
        metavar="NAME",
        help="of PyTorch: only the tensors of this value of hvd.State, such as model, by the "
        "names in its state_dict",
    )
    export.set_defaults(handler=_export)


def _list(options: argparse.Namespace) -> int:
    found = find(options.directory)
    table = Table()
    for title in ("checkpoint", "written", "ranks", "loop", "step", "MiB", "CPU s", "state"):
        left = title in ("checkpoint", "state")
        table.add_column(title, justify="left" if left else "right", no_wrap=True)
    for each in found:
        manifest = each.manifest
        if manifest is None:
            table.add_row(each.name, *[""] * 6, each.state)
            continue
        cpu = sum(share.cpu_seconds for share in manifest.shares)
        table.add_row(
            each.name,
            datetime.fromtimestamp(manifest.written).isoformat(" ", "seconds"),
            str(manifest.size),
            str(manifest.loop),
            str(manifest.step),
            f"{manifest.bytes / _MIB:.1f}",
            f"{cpu:.2f}",
            each.state,
        )
    Console(width=_WIDTH).print(table, crop=False)
    if any(_is_whole(each) for each in found):
        return 0
    say(f"{options.directory} has no complete checkpoint")
    return EXIT_NOT_WHOLE


def _verify(options: argparse.Namespace) -> int:
    found = find(options.directory)
    wrong = 0
    for each in found:
        if each.incomplete and len(found) > 1:
            answer(f"{each.name}: incomplete, not looked at")
            continue
        problems = [each.refused] if each.manifest is None else _problems(each)
        for problem in problems:
            say(f"{each.path}: {problem}; delete it, or continue from another one")
        wrong += bool(problems)
        if not problems and each.manifest:
            answer(f"{each.name}: {len(each.manifest.files)} files as they were written")
    if not found:
        say(f"{options.directory} has no checkpoint")
    return EXIT_NOT_WHOLE if wrong or not found else 0


def _problems(checkpoint: Checkpoint) -> list[str]:
    assert checkpoint.manifest is not None
    return damage(checkpoint.path, checkpoint.manifest.files.items())


def _export(options: argparse.Namespace) -> int:
    from hvd_ft.checkpoint.export import export

    chosen = _chosen(options.directory)
    if problems := _problems(chosen):
        raise HvdFtError(
            f"{chosen.path} cannot be exported: {problems[0]}; give another checkpoint by its path"
        )
    count = export(chosen, options.output, options.rank, options.loop, options.only)
    answer(f"{options.output}: {count} variables of {chosen.name}")
    return 0


def _chosen(directory: Path) -> Checkpoint:
    found = find(directory)
    usable = [each for each in found if each.manifest is not None]
    whole = [each for each in usable if _is_whole(each)] if len(found) > 1 else usable
    if whole:
        return whole[-1]
    reason = f" ({found[-1].name}: {found[-1].state})" if found else ""
    raise HvdFtError(
        f"{directory} has no complete checkpoint{reason}: give the directory of --checkpoint-dir"
    )


def _is_whole(checkpoint: Checkpoint) -> bool:
    return checkpoint.manifest is not None and checkpoint.manifest.whole
