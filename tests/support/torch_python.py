"""Finds a Python with packages that tests need: $PENSTOCK_PYTHON, the one that runs the test, or the one in build/venv or
in build/hf/venv, which the test hf.packages makes (tools/fetch_smollm2.py)."""
import functools
import importlib.util
import os
import subprocess
import sys

BUILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build")
VENV = os.path.join(BUILD, "venv", "bin", "python")
HF = os.path.join(BUILD, "hf")
SMOLLM2 = os.path.join(HF, "SmolLM2-135M-Instruct")
UNAVAILABLE = os.path.join(HF, "unavailable.txt")  # why the packages or the model could not be fetched
NONE = "no Python here has {}; PENSTOCK_PYTHON can name one"
SKIPPED = 77


def has_packages(python, packages):
    """Whether `python` finds these packages; they are not imported, which would take seconds."""
    code = "import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))"
    try:
        return bool(python) and subprocess.run([python, "-c", code, *packages.split()],
                                               capture_output=True).returncode == 0
    except OSError:
        return False


@functools.cache
def torch_python(packages="torch"):
    """Its path; none if there is none. `packages`, with spaces between them, are the names of modules."""
    for python in (os.environ.get("PENSTOCK_PYTHON", ""), sys.executable, VENV,
                   os.path.join(HF, "venv", "bin", "python")):
        if has_packages(python, packages):
            return python
    return None


def required(packages):
    """The path of a Python with these packages; ends the test as skipped, with the reason, if there is none."""
    if python := torch_python(packages):
        return python
    reason = NONE.format(packages.replace(" ", ", "))
    if os.path.exists(UNAVAILABLE):
        with open(UNAVAILABLE) as file:
            reason += ": " + file.read()
    print("skipped: " + reason)
    sys.exit(SKIPPED)


def run_with(packages):
    """Begins the script again with such a Python, unless this one has them."""
    if not all(map(importlib.util.find_spec, packages.split())):
        os.execv(python := required(packages), [python, "-W", "ignore", *sys.argv])
