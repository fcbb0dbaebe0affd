"""The frameworks that scripts are written with: one of them has to be installed, both may be.

Nothing is imported to look for them: versions come from the metadata of installed packages.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from hvd_ft.errors import HvdFtError
from hvd_ft.system.distributions import version_of

TENSORFLOW_VERSION = "2.15.1"  # the default's: the last with tf.estimator
NEWER = "2.21"  # TensorFlow with Keras 3, and with tf_keras; any release of it
_LEAST_TORCH, _LAST_TORCH = (2, 1), (2, 13)  # those that are compiled as C++17, like Horovod
TESTED_TORCH = "2.13.0"


@dataclass(frozen=True)
class Framework:
    """A framework that Horovod has a binding for.

    Attributes:
        key: names it on the command line; Horovod's binding is `horovod.<key>`.
        name: for the user.
        distributions: names of the packages that contain it.
        library: pattern of the file of Horovod's binding.
        wanted: the versions that hvd_ft works with, for the user.
        install: command that installs it.
        build: what Horovod's build calls it, as in HOROVOD_WITH_TENSORFLOW.
    """

    key: str
    name: str
    distributions: tuple[str, ...]
    library: str
    wanted: str
    install: str
    build: str

    def version(self) -> str | None:
        """Returns the installed version; None if the framework is not installed."""
        return next(filter(None, map(version_of, self.distributions)), None)

    def fits(self) -> bool:
        """Returns whether it is installed in a version that hvd_ft works with."""
        version = self.version()
        if version is None:
            return False
        if self is TENSORFLOW:
            return version == TENSORFLOW_VERSION or is_newer()
        numbers = re.match(r"(\d+)\.(\d+)", version)
        if numbers is None:
            return False
        return _LEAST_TORCH <= (int(numbers[1]), int(numbers[2])) <= _LAST_TORCH


TENSORFLOW = Framework(
    key="tensorflow",
    name="TensorFlow",
    distributions=("tensorflow", "tensorflow-cpu", "tensorflow-intel", "intel-tensorflow"),
    library="mpi_lib.*.so",
    wanted=f"{TENSORFLOW_VERSION} and {NEWER}",
    install=f"pip install tensorflow-cpu=={TENSORFLOW_VERSION}",
    build="TENSORFLOW",
)
TORCH = Framework(
    key="torch",
    name="PyTorch",
    distributions=("torch",),
    library="mpi_lib_v2.*.so",
    wanted=f"2.{_LEAST_TORCH[1]} to 2.{_LAST_TORCH[1]} (tested: {TESTED_TORCH})",
    install=f"pip install torch=={TESTED_TORCH}",
    build="PYTORCH",
)
FRAMEWORKS = (TENSORFLOW, TORCH)


def is_newer() -> bool:
    """Returns whether today's TensorFlow is installed, and not the default's."""
    return (TENSORFLOW.version() or "").startswith(f"{NEWER}.")


def fitting() -> tuple[Framework, ...]:
    """Returns the frameworks that are installed in versions that hvd_ft works with."""
    return tuple(framework for framework in FRAMEWORKS if framework.fits())


def named(keys: Collection[str]) -> tuple[Framework, ...]:
    """Returns the frameworks with these keys, in the order of `FRAMEWORKS`.

    Args:
        keys: such as "tensorflow" and "torch".

    Raises:
        HvdFtError: there is no such framework.
    """
    known = [framework.key for framework in FRAMEWORKS]
    for key in keys:
        if key not in known:
            raise HvdFtError(f"there is no framework {key!r}; give {' or '.join(known)}")
    return tuple(framework for framework in FRAMEWORKS if framework.key in keys)


def require(framework: Framework) -> str:
    """Returns the framework's version.

    Raises:
        HvdFtError: it is not installed, or in another version than hvd_ft works with.
    """
    version = framework.version()
    if version is None:
        raise HvdFtError(f"{framework.name} is not installed; run: {framework.install}")
    if not framework.fits():
        raise HvdFtError(
            f"{framework.name} {version} is installed, and hvd_ft works with {framework.wanted}; "
            f"run: {framework.install}"
        )
    return version


def check_frameworks() -> str:
    """Returns the frameworks that fit, with their versions.

    Raises:
        HvdFtError: none fits.
    """
    found = fitting()
    if found:
        return ", ".join(f"{framework.name} {framework.version()}" for framework in found)
    installed = [framework for framework in FRAMEWORKS if framework.version()]
    if installed:
        require(installed[0])
    commands = " or ".join(f"'{framework.install}'" for framework in FRAMEWORKS)
    raise HvdFtError(f"neither TensorFlow nor PyTorch is installed; run {commands}")
