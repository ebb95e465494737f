"""Finds a Python that imports torch: $PENSTOCK_PYTHON, the one that runs the test, or that of build/venv or
build/hf/venv."""
import functools
import importlib
import os
import subprocess
import sys

BUILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build")
VENV = os.path.join(BUILD, "venv", "bin", "python")
HF = os.path.join(BUILD, "hf")  # made by tools/fetch_smollm2.py
NONE = "no Python here imports {}; PENSTOCK_PYTHON can name one that does"
SKIPPED = 77


@functools.cache
def torch_python(modules="torch.distributed.run"):
    """Its path; none if there is none. `modules` as in an import statement."""
    for python in (os.environ.get("PENSTOCK_PYTHON", ""), sys.executable, VENV,
                   os.path.join(HF, "venv", "bin", "python")):
        try:
            if python and subprocess.run([python, "-c", "import " + modules], capture_output=True).returncode == 0:
                return python
        except OSError:
            pass
    return None


def run_with(modules):
    """Begins the script again with such a Python, unless this one imports them. Without one the test is skipped."""
    try:
        for module in modules.split(", "):
            importlib.import_module(module)
        return
    except ImportError:
        python = torch_python(modules)
    if python is None:
        print("skipped: " + NONE.format(modules))
        sys.exit(SKIPPED)
    os.execv(python, [python, "-W", "ignore", *sys.argv])
