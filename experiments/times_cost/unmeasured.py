"""Makes a core that does not measure how ranks spend their time, for comparison."""

import shutil
import subprocess
from pathlib import Path

from experiments.common import ROOT
from hvd_ft import __version__
from hvd_ft.errors import HvdFtError

ROOMS = ("base", "arena", "worker", "oplog", "replication", "agent", "observer")
# The places that read the clock, or write what it said.
LEFT_OUT = {
    "worker/op.cc": (
        "  w.block().op_times.contributed(s.record.id, hvdft::now_ns());\n",
        "  uint64_t now = hvdft::now_ns();\n  if (w.begun.empty()) w.times.begun(now);\n"
        "  w.block().op_times.begin(id, w.times.latest_pended(), now);\n",
        "    if (network != w.times.waits_for_network()) "
        "w.times.network(network, hvdft::now_ns());\n",
        "      uint64_t now = hvdft::now_ns();\n      w.block().op_times.done(s.record.id, now);\n"
        "      if (w.begun.empty()) w.times.ended(now);\n",
    ),
    "worker/worker.cc": (
        "  if (tensors > 0) w.times.pended(hvdft::now_ns());\n",
        "  if (w.block().pending.load() == 0) hvdft::end_round(w);\n",
    ),
}


def build_unmeasured(folder: Path) -> Path:
    """Compiles a copy of the core without these places.

    Args:
        folder: where it is made.

    Returns:
        Path of the library.

    Raises:
        HvdFtError: a place is not in the source, or the compiler fails.
    """
    source = folder / "csrc"
    shutil.copytree(ROOT / "hvd_ft" / "csrc", source)
    for name, places in LEFT_OUT.items():
        path = source / name
        text = path.read_text()
        for place in places:
            if text.count(place) != 1:
                raise HvdFtError(f"{name} has not once {place.strip()!r}: change unmeasured.py")
            text = text.replace(place, "")
        path.write_text(text)
    library = folder / "libhvd_ft.so"
    options = ["-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-pthread", "-shared", "-w"]
    include = [f"-I{source}", f"-I{source / 'include'}", f'-DHVDFT_VERSION="{__version__}"']
    sources = sorted(str(path) for room in ROOMS for path in (source / room).glob("*.cc"))
    ended = subprocess.run(
        ["g++", *options, *include, *sources, "-o", str(library)], check=False, text=True
    )
    if ended.returncode:
        raise HvdFtError("the copy of the core cannot be compiled, see above")
    return library
