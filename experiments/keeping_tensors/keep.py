"""Keeps a tensor in several ways, and gets it back; prints how long each took.

The script of a job of one rank: see run.py.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from hvd_ft.p2p import ft_recv, ft_send

try:
    import torch
except ImportError:
    torch = None

Way = Callable[[np.ndarray, Path], Callable[[], np.ndarray]]


def with_savetxt(tensor: np.ndarray, file: Path) -> Callable[[], np.ndarray]:
    np.savetxt(file, tensor)
    return lambda: np.loadtxt(file, dtype=np.float32, ndmin=1)


def with_save(tensor: np.ndarray, file: Path) -> Callable[[], np.ndarray]:
    np.save(file, tensor)
    return lambda: np.load(file.with_name(f"{file.name}.npy"))


def with_torch(tensor: np.ndarray, file: Path) -> Callable[[], np.ndarray]:
    torch.save(torch.from_numpy(tensor), file)
    return lambda: torch.load(file).numpy()


def with_safetensors(tensor: np.ndarray, file: Path) -> Callable[[], np.ndarray]:
    save_file({"tensor": tensor}, file)
    return lambda: load_file(file)["tensor"]


def in_the_arena(tensor: np.ndarray, _file: Path) -> Callable[[], np.ndarray]:
    """As `ft_send` logs it: when it returns, the arena has the tensor with its checksum."""
    ft_send(tensor, 0)
    return lambda: ft_recv(None, 0)


def now() -> np.ndarray:
    """Returns the time, and the CPU time of this process: seconds."""
    return np.array([time.perf_counter(), time.process_time()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kib", type=int, nargs="+")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--limit", type=float, help="of CPU time: a way that took longer ends")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    ways: dict[str, Way] = {"np.savetxt": with_savetxt, "np.save": with_save}
    if torch:
        ways["torch.save"] = with_torch
    ways |= {"safetensors": with_safetensors, "arena": in_the_arena}
    for kib in options.kib:
        tensor = np.random.default_rng(kib).standard_normal(kib * 256).astype(np.float32)
        for repeat in range(-1 if kib == options.kib[0] else 0, options.repeats):
            for way, keep in list(ways.items()):
                file = options.folder / "tensor"
                begin = now()
                load = keep(tensor, file)
                kept = now()
                got = load()
                times = {"save": kept - begin, "load": now() - kept}
                assert np.allclose(got, tensor), way  # savetxt rounds
                if repeat < 0:  # to warm up
                    continue
                row = {"way": way, "kib": kib, "repeat": repeat}
                for what, (seconds, cpu) in times.items():
                    row |= {f"{what}_s": seconds, f"{what}_cpu_s": cpu}
                print(json.dumps(row), flush=True)
                if sum(cpu for _, cpu in times.values()) > options.limit:
                    del ways[way]


if __name__ == "__main__":
    main()
