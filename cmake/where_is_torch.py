"""Prints the folder of CMake files of the torch that this Python would import.

Does not import it: that takes seconds.

    where_is_torch.py MINIMUM    e.g. 2.5; a torch that is older, or none, gives exit code 1 and no output
"""
import importlib.metadata
import importlib.util
import pathlib
import re
import sys


def number(version):
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


spec = importlib.util.find_spec("torch")
if spec is None or not spec.submodule_search_locations:
    sys.exit(1)
if number(importlib.metadata.version("torch")) < number(sys.argv[1]):
    sys.exit(1)
folder = pathlib.Path(spec.submodule_search_locations[0]) / "share" / "cmake"
if not (folder / "Torch" / "TorchConfig.cmake").is_file():
    sys.exit(1)
print(folder)
