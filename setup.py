"""Packages hvd_ft; CMakeLists.txt says how its libraries are compiled."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from importlib import metadata
from pathlib import Path

from cffi import FFI
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
# Kept: only what has changed is compiled again. Each environment of the checkout has its own.
SUFFIX = Path(sys.prefix).name.removeprefix(".venv") if Path(sys.prefix).parent == ROOT else ""
BUILD = ROOT / "build" / f"cmake{SUFFIX}"
VERSION = re.findall(r'__version__ = "(.+)"', (ROOT / "hvd_ft/__init__.py").read_text())[0]
# Build requirements are the same (pyproject.toml): without them a library would be missing.
MPI_VERSION = "2021.18.1"


def commit() -> str:
    """Returns the commit of this checkout, or the one that an sdist was made of; "" if unknown."""
    if not (ROOT / ".git").exists():
        made = ROOT / "hvd_ft" / "COMMIT"
        return made.read_text() if made.exists() else ""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "HEAD"], check=False, capture_output=True, text=True
    )
    return done.stdout


class BuildPython(build_py):
    """Copies the package, and notes the commit beside it."""

    def run(self) -> None:
        """As usual, then the note."""
        super().run()
        if not self.editable_mode and commit():
            (Path(self.build_lib) / "hvd_ft" / "COMMIT").write_text(commit())


class SourceDistribution(sdist):
    """Gathers the sources, and notes the commit among them."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """As usual, then the note."""
        super().make_release_tree(base_dir, files)
        if commit():
            (Path(base_dir) / "hvd_ft" / "COMMIT").write_text(commit())


class BuildLibraries(build_ext):
    """Compiles plain shared libraries, without Python's headers."""

    def get_ext_filename(self, fullname: str) -> str:
        """Returns the library's path; it serves every Python, so no ABI tag."""
        return fullname.replace(".", os.sep) + ".so"

    def run(self) -> None:
        """Compiles, and makes the Python module that declares what the libraries have."""
        super().run()
        package = (ROOT if self.inplace else Path(self.build_lib)) / "hvd_ft"
        generate_abi(package / "native" / "_abi.py")

    def build_extensions(self) -> None:
        """Configures the build; then as usual."""
        made_for = f"{ROOT}\n{os.environ.get('CXX', '')}\n"  # CMake reads CXX, once
        note = BUILD / "made_for"
        if not (note.is_file() and note.read_text() == made_for):
            shutil.rmtree(BUILD, ignore_errors=True)  # or copied from another checkout
        include, library = intel_mpi()
        definitions = {
            "HVDFT_MPI_INCLUDE": include,
            "HVDFT_MPI_LIBRARY": library,
            "CMAKE_CXX_FLAGS": os.environ.get("CXXFLAGS", ""),
        }
        defined = [f"-D{name}={value}" for name, value in definitions.items()]
        self.cmake("-S", str(ROOT), "-B", str(BUILD), *defined)
        note.write_text(made_for)
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        """Compiles what has changed of a library, and puts it into its place if it is new."""
        target = ext.name.split(".")[-1]
        jobs = str(os.cpu_count() or 1)
        self.cmake("--build", str(BUILD), "--target", target, "--parallel", jobs)
        made = BUILD / f"{target}.so"
        library = Path(self.get_ext_fullpath(ext.name))
        if library.exists() and library.read_bytes() == made.read_bytes():
            return
        library.parent.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_suffix(f".so.{os.getpid()}")
        try:
            shutil.copy(made, unfinished)
            # A process that has mapped the old library keeps it.
            unfinished.replace(library)
        finally:
            unfinished.unlink(missing_ok=True)

    def cmake(self, *arguments: str) -> None:
        """Runs CMake, that of the Python environment first; its output is seen when it fails."""
        path = os.pathsep.join([f"{sys.prefix}/bin", os.environ.get("PATH", "")])
        program = shutil.which("cmake", path=path)
        if program is None:
            raise SystemExit("hvdft: cmake is not there; run: pip install 'cmake>=3.18,<4'")
        done = subprocess.run(
            [program, *arguments],
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if done.returncode or self.verbose > 1 or "warning:" in done.stdout:
            print(done.stdout, file=sys.stderr, flush=True)
        if done.returncode:
            raise SystemExit(
                "hvdft: the libraries do not compile, see the errors above; "
                "they need a C++17 compiler and make (Debian: apt-get install g++ make)"
            )


def generate_abi(module: Path) -> None:
    """Makes the Python module that declares what the C headers do, by cffi."""
    ffi = FFI()
    ffi.set_source("hvd_ft.native._abi", None)
    for name in (
        "hvd_ft.h",
        "hvd_ft_limits.h",
        "hvd_ft_logs.h",
        "hvd_ft_rejoin.h",
        "hvd_ft_snapshots.h",
        "hvd_ft_checkpoints.h",
        "hvd_ft_sums.h",
        "hvd_ft_numa.h",
        "hvd_ft_times.h",
        "hvd_ft_mpi.h",
    ):
        header = (ROOT / "hvd_ft/csrc/include" / name).read_text()
        c_only = re.sub(r"#ifdef __cplusplus.*?#endif", "", header, flags=re.DOTALL)
        declarations = re.sub(r"^#.*$", "", c_only, flags=re.MULTILINE)
        ffi.cdef(declarations.replace("HVDFT_API ", ""))
    module.parent.mkdir(parents=True, exist_ok=True)
    with redirect_stdout(None):
        ffi.emit_python_code(str(module))


def intel_mpi() -> tuple[Path, Path]:
    """Returns the folder of Intel MPI's mpi.h, and its libmpi.so: from PyPI, or of I_MPI_ROOT."""
    found = {}
    for name, file in (("impi-devel", "include/mpi.h"), ("impi-rt", "lib/libmpi.so")):
        try:
            files = metadata.files(name) or []
        except metadata.PackageNotFoundError:
            files = []
        # pip's isolated build environment has them elsewhere than in sys.prefix.
        places = [Path(str(path.locate())).resolve() for path in files]
        root = os.environ.get("I_MPI_ROOT")
        places += [Path(root, file)] if root else []
        found[name] = next((p for p in places if p.match(file) and p.is_file()), None)
    header, library = found.values()
    if header is None or library is None:
        raise SystemExit(
            f"hvdft: Intel MPI's mpi.h or libmpi.so is not there; run: pip install "
            f"impi-devel=={MPI_VERSION} impi-rt=={MPI_VERSION}"
        )
    return header.parent, library


setup(
    name="hvd_ft",
    version=VERSION,
    description="Fault-tolerant Horovod over MPI",
    license="Apache-2.0",
    license_files=["LICENSE", "NOTICE"],
    python_requires=">=3.11,<3.14",
    packages=[*find_packages(include=["hvd_ft", "hvd_ft.*"]), "hvd_ft.patches"],
    package_dir={"hvd_ft.patches": "patches"},
    package_data={
        "hvd_ft": [
            *("py.typed", "csrc/include/hvd_ft.h", "csrc/include/hvd_ft_limits.h"),
            "reports/report.schema.json",
            "installed/tested.json",
            *("csrc/horovod/**/*.h", "csrc/horovod/**/*.cc", "page/static/*"),
        ],
        "hvd_ft.patches": ["*/*.patch"],
    },
    ext_modules=[
        Extension(f"hvd_ft.{library}", [])
        for library in ("libhvd_ft", "libhvdft_mpi", "libhvdft_listen")
    ],
    cmdclass={
        "build_ext": BuildLibraries,
        "build_py": BuildPython,
        "sdist": SourceDistribution,
    },
    entry_points={"console_scripts": ["hvdft = hvd_ft.cli:main"]},
    install_requires=[
        "numpy>=1.23,<3",
        "mpi4py>=4.1,<5",
        "cffi>=1.17,<3",
        f"impi-rt=={MPI_VERSION}",
        "matplotlib>=3.8",
        "msgspec>=0.18,<1",
        "xxhash>=3,<5",
        "psutil>=5.9",
        "safetensors>=0.5,<1",
        "rich>=13",
        # the status page
        "aiohttp>=3.9,<4",
        "prometheus_client>=0.20,<1",
        "shtab>=1.7,<2",
        "cloudpickle>=3",
        # for `hvdft build-horovod`, and for Horovod itself
        f"impi-devel=={MPI_VERSION}",
        "cmake>=3.18,<4",
        "packaging>=23",
        "patch-ng>=1.18,<2",
        "pyyaml>=6",
        "setuptools>=65,<81",
        "wheel>=0.40",
    ],
    # One of the two frameworks is needed (see hvd_ft/installed/frameworks.py). PyPI's torch for
    # Linux is a CUDA build of some 3 GB.
    extras_require={
        "tensorflow": [
            "tensorflow-cpu==2.15.1; python_version < '3.12'",
            "tensorflow-cpu>=2.21,<2.22; python_version >= '3.12'",
        ],
        "tensorflow-2.21": ["tensorflow-cpu>=2.21,<2.22"],
        "torch": ["torch>=2.1,<2.14"],
        "test": [
            "hypothesis",
            "jsonschema",
            "mypy",
            "pytest",
            "pytest-timeout",
            "ruff",
            "scikit-learn",
        ],
        "docs": ["mkdocs-material>=9.7,<10", "mkdocstrings[python]>=1,<2"],
    },
)
