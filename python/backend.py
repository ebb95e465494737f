"""The build backend of the folder above, whose pyproject.toml describes the package."""
import os
from pathlib import Path

os.chdir(Path(__file__).resolve().parent.parent)

from scikit_build_core.build import *  # noqa: E402, F403
