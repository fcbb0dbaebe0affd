# The first process of the guest (guest.py puts two lines before this: which Python, which script).
import ctypes
import os
import subprocess
import traceback

libc = ctypes.CDLL(None, use_errno=True)


def mount(kind: str, where: str) -> None:
    os.makedirs(where, exist_ok=True)
    if libc.mount(kind.encode(), where.encode(), kind.encode(), 0, None):
        raise OSError(ctypes.get_errno(), f"mounting {where}")


def run() -> int:
    """Runs the script; its lines go to the console with a mark before them."""
    env = {"PYTHONPATH": PYTHONPATH, "HOME": "/tmp", "PATH": "/bin", "PYTHONUNBUFFERED": "1"}  # noqa: F821
    command = [os.readlink("/proc/self/exe"), SCRIPT]  # noqa: F821
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as script:
        for line in script.stdout:
            print(f"GUEST {line}", end="", flush=True)
    return script.returncode


try:
    for kind, where in (
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/dev/shm"),
    ):
        mount(kind, where)
    print(f"GUEST ended with {run()}", flush=True)
except BaseException:
    traceback.print_exc()
finally:
    os.sync()
    libc.reboot(0x4321FEDC)  # power off
