"""What the command lines of the rooms have in common."""

import argparse
from collections.abc import Callable
from typing import Any

# Makes a command's parser of its place, name, help and example.
AddCommand = Callable[[Any, str, str, str], argparse.ArgumentParser]
