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
sys.path.insert(0, os.path.join(HERE, "..", "..", "tools"))
import fetch_smollm2  # noqa: E402
import torch_python  # noqa: E402

program, mpiexec = sys.argv[1], sys.argv[2:]
LOGITS, LOSSES = 1e-5, 1e-5


def lines(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout.splitlines()


python = torch_python.torch_python("torch, transformers")
if python is None:
    try:
        python = fetch_smollm2.make_venv(os.path.join(HERE, "..", "..", "build", "hf", "venv"))
    except fetch_smollm2.NotAvailable as error:
        print(f"skipped: {error}")
        sys.exit(torch_python.SKIPPED)

with tempfile.TemporaryDirectory() as folder:
    subprocess.run([python, "-W", "ignore", os.path.join(HERE, "make_tiny_models.py"),
                    os.path.join(HERE, "tiny_configs.h"), folder], check=True, stderr=subprocess.DEVNULL)
    directories = sorted(glob.glob(os.path.join(folder, "*")))
    if len(directories) < 9:
        sys.exit(f"only {len(directories)} models were made")
    outcomes, compared = {}, 0
    for line in lines([program, "1,2,3,4", *directories]):
        if ":" in line:
            name, outcome = line.split(":")
            if outcomes.setdefault(name, outcome) != outcome:
                sys.exit(f"{name}: another number of stages computes other bits")
            continue
        name, stages, _, logits, _, losses = line.split()
        if float(logits) > LOGITS or float(losses) > LOSSES:
            sys.exit(f"{name}, {stages} stages: relative errors {logits} of the logits, {losses} of the losses")
        compared += 1
    if compared != 4 * len(directories):
        sys.exit(f"{compared} comparisons instead of {4 * len(directories)}")
    print(f"{len(directories)} models equal transformers, the same bits on 1, 2, 3 and 4 stages")
    launchers = {"gloo": [sys.executable, os.path.join(HERE, "..", "support", "gloo_run.py")]}
    if mpiexec:
        launchers["mpi"] = [*mpiexec, "--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader"]
    for name, launcher in launchers.items():
        own = [line for line in lines([*launcher, "-n", "3", program, "3", *directories[:2]]) if ":" in line]
        if len(own) != 2 or any(outcomes[line.split(":")[0]] != line.split(":")[1] for line in own):
            sys.exit(f"{name}: other bits than threads, or none: {own}")
        print(f"3 processes over {name}: the same bits")
