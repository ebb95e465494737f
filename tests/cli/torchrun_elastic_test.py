#!/usr/bin/env python3
"""Two agents of torchrun, as on two hosts, of which one is killed: the training goes on with the ranks that are left,
and computes the bits of one that was not disturbed.

The agent that is killed is not the one that holds the store at which agents meet: without the store none can go on.

Usage: torchrun_elastic_test.py PENSTOCK DATA. Skipped if no Python can import torch (tests/support/torch_python.py).
"""

import contextlib
import glob
import os
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import gloo_run
import program_runs
from program_runs import ENVIRONMENT, WATCHDOG_S, ProgramRuns, main, processes_of
from torch_python import NONE, torch_python

# torchrun notices after the time of three keep-alives that an agent is gone, and then waits for others to come. That
# time is longer than one agent can start after the other: agents that meet while the first ones already train may end
# with an error of torchrun's store.
MEETING = "last_call_timeout=15,keep_alive_interval=1,keep_alive_max_attempt=3"


class TorchrunElastic(ProgramRuns):
    def training(self, *flags):
        return self.train("--schedule", "1f1b", "--micro-batches", "4", "--epochs", "20", "--log-every", "0",
                          "--eval-every", "0", "--save-weights", self.path("weights.safetensors"), *flags)

    def agent(self, port, ranks, is_host):
        """An agent that starts `ranks` of the job, and the file of its output."""
        output = tempfile.TemporaryFile("w+")
        self.addCleanup(output.close)
        run = subprocess.Popen(
            [torch_python(), "-m", "torch.distributed.run", "--no-python", "--nnodes", "1:2", "--nproc-per-node",
             str(ranks), "--max-restarts", "10", "--monitor-interval", "0.1", "--rdzv-backend", "c10d",
             "--rdzv-endpoint", f"localhost:{port}", "--rdzv-conf", f"is_host={int(is_host)},{MEETING}",
             program_runs.PROGRAM, *self.training("--stages", "auto", "--checkpoint", "run", "--checkpoint-every",
                                                  "50steps", "--resume", "auto", "--deadline", "5")],
            cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=ENVIRONMENT)
        self.addCleanup(self.kill, run)
        return run, output

    def kill(self, run):
        """An agent with its ranks, as if its host were switched off."""
        for pid in [run.pid, *processes_of(run)] if run.poll() is None else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        run.wait()

    def text_of(self, output):
        output.seek(0)
        return output.read()

    def test_an_agent_is_killed(self):
        if not torch_python():
            self.skipTest(NONE.format("torch"))
        self.output_of(*self.training("--stages", "2"))
        wanted = self.read_bytes("weights.safetensors")
        os.remove(self.path("weights.safetensors"))

        port = gloo_run.free_port()
        kept, output = self.agent(port, ranks=2, is_host=True)
        lost, lost_output = self.agent(port, ranks=1, is_host=False)
        self.wait_until(kept, lambda: len(glob.glob(self.path("run/step-*"))) >= 2)
        self.kill(lost)
        self.assertEqual(kept.wait(WATCHDOG_S), 0, self.text_of(output))
        text = self.text_of(output)
        # Rank 0, which prints this, may have been one of the lost agent's.
        self.assertRegex(text + self.text_of(lost_output), r"3 pipeline ranks")
        self.assertRegex(text, r"resumed from run at step \d+")
        self.assertRegex(text, r"2 pipeline ranks")
        self.assertEqual(self.read_bytes("weights.safetensors"), wanted)


if __name__ == "__main__":
    main()
