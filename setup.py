"""Packages hvd_ft and compiles its core into hvd_ft/libhvd_ft.so, and with an Intel MPI at hand
the ring over MPI into hvd_ft/libhvdft_mpi.so."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

CORE = Path("hvd_ft/core")
MPI = Path("hvd_ft/mpi")
VERSION = re.findall(r'__version__ = "(.+)"', Path("hvd_ft/__init__.py").read_text())[0]
FLAGS = "-std=c++17 -O3 -fPIC -shared -fvisibility=hidden -Wall -Wextra -pthread"


class BuildCore(build_ext):
    """Compiles plain shared libraries, without Python's headers."""

    def get_ext_filename(self, fullname: str) -> str:
        """Returns the library's path; it serves every Python, so no ABI tag."""
        return fullname.replace(".", os.sep) + ".so"

    def build_extension(self, ext: Extension) -> None:
        """Compiles `ext` if an input is newer than the library; CXX and CXXFLAGS count."""
        library = Path(self.get_ext_fullpath(ext.name))
        inputs = [*ext.sources, *ext.depends]
        newest = max(os.stat(path).st_mtime for path in inputs)
        if not self.force and library.exists() and library.stat().st_mtime > newest:
            return
        compiler = shlex.split(os.environ.get("CXX", "g++"))
        flags = shlex.split(f"{FLAGS} {os.environ.get('CXXFLAGS', '')}")
        flags.append(f'-DHVDFT_VERSION="{VERSION}"')
        flags += [f"-I{path}" for path in ext.include_dirs]
        library.parent.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_suffix(f".so.{os.getpid()}")
        try:
            command = [*compiler, *flags, "-o", unfinished, *ext.sources, *ext.extra_link_args]
            subprocess.run(command, check=True)
            # A process that has mapped the old library keeps it.
            unfinished.replace(library)
        except FileNotFoundError:
            raise SystemExit(
                f"hvd_ft: {compiler[0]} is not there, and the core has to be compiled; "
                "install a compiler (Debian: apt-get install g++)"
            ) from None
        except subprocess.CalledProcessError:
            raise SystemExit("hvd_ft: the core does not compile; see the errors above") from None
        finally:
            unfinished.unlink(missing_ok=True)


def sources(folder: Path) -> list[str]:
    """Returns the C++ files of a folder."""
    return sorted(str(path) for path in folder.glob("*.cc"))


def headers(folder: Path) -> list[str]:
    """Returns what makes compiled files of this folder old."""
    return ["setup.py", *sorted(str(path) for path in folder.glob("*.h"))]


def extensions() -> list[Extension]:
    """Returns the core, and the ring over MPI if there is an Intel MPI to compile it against."""
    core = Extension("hvd_ft.libhvd_ft", sources=sources(CORE), depends=headers(CORE))
    for root in filter(None, [sys.prefix, os.environ.get("I_MPI_ROOT")]):
        library = Path(root, "lib", "libmpi.so")
        if Path(root, "include", "mpi.h").is_file() and library.is_file():
            # No rpath: the process has loaded its MPI when it loads this, and it must be that one.
            ring = Extension(
                "hvd_ft.libhvdft_mpi",
                sources=[*sources(MPI), *sources(CORE)],
                depends=[*headers(MPI), *headers(CORE)],
                include_dirs=[str(CORE), f"{root}/include"],
                extra_link_args=[str(library)],
            )
            return [core, ring]
    return [core]


setup(
    name="hvd_ft",
    version=VERSION,
    description="Fault-tolerant Horovod over MPI",
    python_requires=">=3.11,<3.12",
    packages=[*find_packages(include=["hvd_ft", "hvd_ft.*"]), "hvd_ft.patches"],
    package_dir={"hvd_ft.patches": "patches"},
    package_data={
        "hvd_ft": ["core/hvd_ft.h", "horovod/*.h", "horovod/*.cc"],
        "hvd_ft.patches": ["*/*.patch"],
    },
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildCore},
    entry_points={"console_scripts": ["hvdft = hvd_ft.cli:main"]},
    install_requires=[
        "tensorflow-cpu==2.15.1",
        "numpy<2",
        "mpi4py>=4.1,<5",
        "impi-rt==2021.18.1",
        "matplotlib>=3.8",
        "psutil>=5.9",
        "rich>=13",
        # for `hvdft build-horovod`, and for Horovod itself
        "impi-devel==2021.18.1",
        "cloudpickle>=3",
        "cmake>=3.18,<4",
        "packaging>=23",
        "patch-ng>=1.18,<2",
        "pyyaml>=6",
        "setuptools>=65,<81",
        "wheel>=0.40",
    ],
    extras_require={"test": ["mypy", "pytest", "pytest-timeout", "ruff", "scikit-learn"]},
)
