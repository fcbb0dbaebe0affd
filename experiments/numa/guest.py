"""A virtual machine with NUMA nodes, on a machine that may have none: QEMU, with or without KVM.

with hvd_ft and this Python in it; its init is `guest_init.py`.
"""

import os
import re
import select
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from hvd_ft.errors import HvdFtError

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "guest"  # of the kernel
SILENT_SECONDS = 600.0  # then it hangs
_QEMU = "qemu-system-x86_64"
_PACKAGES = ("msgspec", "psutil", "rich")
# Of Python's own library: what is large and not needed.
_LEFT_OUT = re.compile(
    r"/(test|tests|idlelib|tkinter|lib2to3|ensurepip|turtledemo|pydoc_data|unittest|asyncio"
    r"|distutils|site-packages|config-.*)/|[.](a|opt-[12][.]pyc)/$"
    r"|/_(tkinter|test\w*|sqlite3|curses\w*|ssl)[.]"
)
_SAYS = "GUEST "  # how lines of the script begin on the guest's console
NODES = 2
_CPUS_OF_NODE, _MIB_OF_NODE = 2, 512


def run_in_guest(script: Path) -> str:
    """Runs a script in a virtual machine with two NUMA nodes of two CPUs and 512 MiB each.

    Args:
        script: in Python; below the checkout. It may import hvd_ft, but neither MPI nor TensorFlow.

    Returns:
        What it has printed.

    Raises:
        HvdFtError: There is no QEMU or no kernel here, or the script failed.
    """
    if shutil.which(_QEMU) is None:
        raise HvdFtError(f"{_QEMU} was not found; Debian: apt-get install qemu-system-x86")
    kernel = find_kernel()
    with tempfile.TemporaryDirectory() as scratch:
        image = Path(scratch) / "initramfs"
        with image.open("wb") as file:
            for part in archive(_contents(script)):
                file.write(part)
        console = _output(_command(kernel, image))
    said = [line[len(_SAYS) :] for line in console.splitlines() if line.startswith(_SAYS)]
    if said[-1:] != ["ended with 0"]:
        raise HvdFtError(f"the script failed in the guest:\n{console}")
    return "\n".join(said[:-1]) + "\n"


def _output(command: list[str]) -> str:
    """Returns what a program prints; it is ended when it has printed nothing for too long."""
    printed = b""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as program:
        assert program.stdout
        end = program.stdout.fileno()
        try:
            while select.select([end], [], [], SILENT_SECONDS)[0]:
                if not (more := os.read(end, 1 << 16)):
                    break
                printed += more
            else:
                printed += b"(and then nothing any more)"
        finally:
            program.kill()
    return printed.decode(errors="replace").replace("\r", "")


def find_kernel() -> Path:
    """Returns a Linux kernel with NUMA: one that is there, otherwise Debian's, downloaded once.

    Raises:
        HvdFtError: There is none.
    """
    given = os.environ.get("HVDFT_GUEST_KERNEL")
    found = [Path(given)] if given else sorted(CACHE.glob("vmlinuz-*"))
    return found[-1] if found else _download_kernel()


def _download_kernel() -> Path:
    def output(*command: str, directory: str = "/") -> str:
        try:
            return subprocess.run(
                command, cwd=directory, check=True, capture_output=True, text=True
            ).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", None) or str(error)
            raise HvdFtError(f"there is no kernel for the guest: {said.strip()}") from None

    listed = output("apt-cache", "depends", "linux-image-cloud-amd64")
    package = re.search(r"Depends: (linux-image-\S+)", listed)
    if package is None:
        raise HvdFtError(
            "there is no kernel for the guest: no package linux-image-cloud-amd64; name a kernel "
            "by HVDFT_GUEST_KERNEL"
        )
    with tempfile.TemporaryDirectory() as scratch:
        # As root apt-get fetches as another user, who cannot write here.
        fetch = ("apt-get", "-o", "APT::Sandbox::User=root", "download", package[1])
        output(*fetch, directory=scratch)
        [deb] = Path(scratch).glob("*.deb")
        output("dpkg-deb", "-x", str(deb), f"{scratch}/x")
        [kernel] = Path(scratch).glob("x/boot/vmlinuz-*")
        CACHE.mkdir(parents=True, exist_ok=True)
        shutil.copy(kernel, CACHE / f".{kernel.name}.{os.getpid()}")
        return (CACHE / f".{kernel.name}.{os.getpid()}").rename(CACHE / kernel.name)


def _command(kernel: Path, image: Path) -> list[str]:
    cpus = NODES * _CPUS_OF_NODE
    # Not KVM: inside of a virtual machine it may hang.
    words = [_QEMU, "-accel", "tcg,thread=multi", "-cpu", "max"]
    words += ["-nographic", "-no-reboot", "-nic", "none", "-m", str(NODES * _MIB_OF_NODE)]
    words += ["-smp", f"{cpus},sockets={NODES},cores={_CPUS_OF_NODE}"]
    for node in range(NODES):
        first = node * _CPUS_OF_NODE
        backend = f"memory-backend-ram,id=m{node},size={_MIB_OF_NODE}M"
        here = f"node,nodeid={node},cpus={first}-{first + _CPUS_OF_NODE - 1},memdev=m{node}"
        words += ["-object", backend, "-numa", here]
    words += ["-numa", "dist,src=0,dst=1,val=21"]
    # A busy machine may give the guest no time while its kernel waits for the timer's interrupts.
    words += ["-append", "console=ttyS0 quiet panic=-1 no_timer_check"]
    return [*words, "-kernel", str(kernel), "-initrd", str(image)]


def _contents(script: Path) -> Iterator[tuple[str, Path | str | None]]:
    """Yields what is in the guest: a path and a file, text, or None for a folder."""
    python = Path(sys.executable).resolve()
    init = Path(__file__).with_name("guest_init.py").read_text()
    packages = sysconfig.get_path("purelib")
    yield (
        "/init",
        f"#!{python}\nSCRIPT, PYTHONPATH = {str(script)!r}, '{ROOT}:{packages}'\n{init}",
    )
    for folder in ("/proc", "/sys", "/dev", "/tmp"):
        yield folder, None
    standard = Path(sysconfig.get_path("stdlib"))
    files = [path for path in standard.rglob("*") if not _LEFT_OUT.search(f"{path}/")]
    for name in _PACKAGES:
        files += [Path(str(path.locate())) for path in metadata.files(name) or ()]
    files += Path(packages).glob("_cffi_backend*.so")
    files += [*(ROOT / "hvd_ft").rglob("*.py"), ROOT / "hvd_ft" / "libhvd_ft.so"]
    files.append(ROOT / "hvd_ft" / "csrc" / "include" / "hvd_ft_limits.h")  # settings read it
    files += (ROOT / "experiments").rglob("*.py")
    files = [python, *(path for path in files if path.is_file())]
    linked = [str(path) for path in files if path == python or ".so" in path.name]
    # It fails for a file that is no program; what it says of the others counts.
    listed = subprocess.run(["ldd", *linked], check=False, capture_output=True, text=True).stdout
    needed = dict.fromkeys(re.findall(r"^\s+(?:\S+ => )?(/\S+) \(", listed, re.MULTILINE))
    for path in (*files, *map(Path, needed)):
        yield os.path.normpath(path), path


def archive(contents: Iterable[tuple[str, Path | str | None]]) -> Iterator[bytes]:
    """Yields a cpio archive in the format `newc`, which Linux unpacks as its first file system.

    Args:
        contents: paths, each with a file of this machine, a text, or None for a folder.
    """
    there: set[str] = set()

    def entry(name: str, mode: int, data: bytes = b"") -> bytes:
        there.add(name)
        path = name.lstrip("/").encode() + b"\0"
        # ino, mode, uid, gid, nlink, mtime, size, device and rdev by two each, name's size, check.
        numbers = (len(there), mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
        head = b"070701" + b"".join(b"%08x" % number for number in numbers) + path
        return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)

    for name, source in contents:
        for folder in reversed(Path(name).parents):
            if str(folder) not in there:
                yield entry(str(folder), stat.S_IFDIR | 0o755)
        if name in there:
            continue
        if source is None:
            yield entry(name, stat.S_IFDIR | 0o755)
        else:
            data = source.encode() if isinstance(source, str) else source.read_bytes()
            yield entry(name, stat.S_IFREG | 0o755, data)
    yield entry("TRAILER!!!", 0)
