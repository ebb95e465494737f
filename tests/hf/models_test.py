"""Tiny models of every architecture compute what transformers computes, on threads, MPI and Gloo with the same bits.

usage: models_test.py PROGRAM [MPIEXEC]
"""
import glob
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import torch_python  # noqa: E402

program, mpiexec = sys.argv[1], sys.argv[2:]
LOGITS, LOSSES = 1e-5, 1e-5
BF16_LOGITS, BF16_LOSSES = 2e-2, 5e-3  # bf16 has 8 bits: each rounding is up to 2e-3 of a value
GENERATED = 3 * 64


def lines(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout.splitlines()


def check(way, command, outcomes):
    """Compares what the command prints with transformers, and with outcomes of other ways. Returns the number of
    comparisons with transformers."""
    compared = 0
    for line in lines(command):
        if ":" in line:
            name, outcome = line.split(":")
            if outcomes.setdefault(name, outcome) != outcome:
                sys.exit(f"{way}, {name}: other bits than on fewer stages or threads")
            continue
        name, stages, *errors, generated = line.split()
        for what, error, limit in zip(("logits", "losses", "bf16 logits", "bf16 losses"), map(float, errors),
                                      (LOGITS, LOSSES, BF16_LOGITS, BF16_LOSSES), strict=True):
            largest[what] = max(largest.get(what, 0), error)
            if not error <= limit:
                sys.exit(f"{way}, {name}, {stages} stages: relative error {error} of {what}")
        if int(generated) != GENERATED:
            sys.exit(f"{way}, {name}, {stages} stages: {generated} of {GENERATED} generated tokens are transformers'")
        compared += 1
    return compared


python = torch_python.required("torch transformers")
largest, outcomes = {}, {}
with tempfile.TemporaryDirectory() as folder:
    subprocess.run([python, "-W", "ignore", os.path.join(HERE, "make_tiny_models.py"),
                    os.path.join(HERE, "tiny_configs.h"), folder], check=True)
    directories = sorted(glob.glob(os.path.join(folder, "*")))
    assert len(directories) >= 9, directories
    assert check("threads", [program, "1,2,3,4", *directories], outcomes) == 4 * len(directories)
    launchers = {"gloo": [sys.executable, os.path.join(HERE, "..", "support", "gloo_run.py")]}
    if mpiexec:
        launchers["mpi"] = [*mpiexec, "--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader"]
    for name, launcher in launchers.items():
        assert check(name, [*launcher, "-n", "3", program, "3", *directories[:2]], outcomes) == 2
print(f"{len(directories)} models on 1 to 4 stages, 2 also on 3 processes of {', '.join(launchers)}: "
      f"the same bits, {GENERATED} tokens each as transformers generates them, largest relative errors "
      + ", ".join(f"{error:.1e} of {what}" for what, error in largest.items()))
