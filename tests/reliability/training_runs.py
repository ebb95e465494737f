"""What the scripts of this folder share: trainings on a small part of MNIST, with threads or with processes under
mpirun, their checkpoints, and what is left of them.

A script is called with PENSTOCK DATA [MPIRUN], the program, the folder of all data sets, and mpirun if the build has
MPI; read_arguments() also takes options of the script.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import program_runs
from program_runs import of_mpi, stored_tensors, write_part

PENSTOCK = DATA = MPIRUN = ""

# Longer than any run, even on a busy machine.
WATCHDOG_S = 300

DURABLE = re.compile(r"checkpoint step (\d+) durable")


def read_arguments(*names, **options):
    """Sets PENSTOCK, DATA and MPIRUN. `names` are further paths of files that come first; `options` are numbers with
    their defaults, given as --name N, or flags with the default False. Returns the paths, then the options."""
    global PENSTOCK, DATA, MPIRUN
    rest, given = sys.argv[1:], dict(options)
    for name, default in options.items():
        flag = "--" + name.replace("_", "-")
        if flag not in rest:
            continue
        at = rest.index(flag)
        given[name] = default is False or type(default)(rest[at + 1])
        del rest[at:at + (1 if default is False else 2)]
    paths = [os.path.abspath(rest.pop(0)) for _ in names]
    PENSTOCK, DATA = map(os.path.abspath, rest[:2])
    MPIRUN = rest[2] if len(rest) > 2 else ""
    program_runs.MPIRUN, program_runs.DATA = MPIRUN, os.path.join(DATA, "mnist")
    return [*paths, *given.values()]


def transports(*both):
    """`both`, or only the first of them, which is of threads, without MPI."""
    return both if MPIRUN else both[:1]


def newest_of(run):
    """The name of the newest checkpoint of a folder; none if there is none."""
    return max((name for name in os.listdir(run) if name.startswith("step-")), default=None) \
        if os.path.isdir(run) else None


def step_of(name):
    return int(name.split("-")[1])


def manifest_of(run):
    with open(os.path.join(run, newest_of(run), "manifest.json")) as file:
        return json.load(file)


def contents(run):
    """Everything of the newest checkpoint but its division into files: equal where no bit differs."""
    manifest = manifest_of(run)
    return {"step": manifest["step"], "data": manifest["data"], "bits": manifest["bits"],
            "states": manifest["states"], "tensors": stored_tensors(os.path.join(run, newest_of(run)))}


def processes_of_session(session):
    """The living processes of a session, by process id: their parents."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found[int(name)] = int(fields[1])
    return found


def is_rank(process):
    """Whether a process trains; others belong to its launcher."""
    try:
        with open(f"/proc/{process}/comm") as file:
            return file.read().startswith("penstock-runtim")
    except OSError:
        return False


def kill_session(session):
    """Kills all processes of the session, also those that are started meanwhile."""
    while found := processes_of_session(session):
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.005)


class Run:
    """A started command, in a session of its own, with its output in files. Under mpirun its temporary files and its
    shared memory are in folders of the test."""

    def __init__(self, test, arguments, *, ranks=None, environment=None, program=None):
        self.test, self.temporary = test, tempfile.mkdtemp(dir=test.folder)
        launch = [MPIRUN, "-n", str(ranks), *program_runs.LAUNCH, "--mca", "btl_vader_backing_directory",
                  self.temporary] if ranks else []
        self.command = [*launch, program or PENSTOCK, *map(str, arguments)]
        self.environment = {**program_runs.ENVIRONMENT, "TMPDIR": self.temporary, "XDG_CACHE_HOME": test.cache,
                            **(environment or {})}
        self.out, self.err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err,
                                        start_new_session=True, env=self.environment)
        test.addCleanup(self.close)

    def close(self):
        kill_session(self.process.pid)
        self.process.wait()
        self.out.close()
        self.err.close()
        shutil.rmtree(self.temporary, ignore_errors=True)

    def wait(self, timeout=WATCHDOG_S):
        """The exit code; fails the test with the output if the command does not end."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            left = processes_of_session(self.process.pid)
            raise AssertionError(f"still running after {timeout} s ({left}): {self.command}\n{self.text()}") from None

    def end_within(self, seconds):
        """The exit code; none if the command does not end in this time: all its processes are then killed."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            kill_session(self.process.pid)
            self.process.wait()
            return None

    def ranks(self):
        """The processes of the ranks by their number; without mpirun the one process as rank 0."""
        if self.command[0] != MPIRUN:
            return {0: self.process.pid}
        found = {}
        for process, parent in processes_of_session(self.process.pid).items():
            try:
                with open(f"/proc/{process}/environ") as file:
                    variables = dict(each.split("=", 1) for each in file.read().split("\0") if "=" in each)
                if parent == self.process.pid:
                    found[int(variables["OMPI_COMM_WORLD_RANK"])] = process
            except (OSError, KeyError):
                pass
        return found

    def leftovers(self):
        """Processes of the session, and files in the folders for temporary files and shared memory."""
        processes = [f"process {process}" for process in processes_of_session(self.process.pid)]
        return processes + [os.path.join(folder, name) for folder, folders, names in os.walk(self.temporary)
                            for name in folders + names]

    def output(self):
        self.out.seek(0)
        return self.out.read()

    def errors(self):
        self.err.seek(0)
        return self.err.read()

    def text(self):
        return self.output() + self.errors()

    def complaints(self):
        """The program's errors, without what mpirun adds."""
        return [line.removeprefix("penstock: ") for line in self.errors().splitlines()
                if line.startswith("penstock: ") and not line.startswith(("penstock: info: ", "penstock: warning: "))]

    def durable(self):
        """The newest step that was reported as durable; -1 if there is none."""
        return max(map(int, DURABLE.findall(self.errors())), default=-1)


class TrainingRuns(unittest.TestCase):
    """Tests with a folder in memory and, in its folder `data`, a small part of MNIST."""

    samples = 200

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="penstock-reliability-",
                                      dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.cache, cls.data = os.path.join(cls.folder, "cache"), os.path.join(cls.folder, "data")
        os.mkdir(cls.data)
        write_part(cls.data, "train", cls.samples)
        write_part(cls.data, "t10k", 32)

    def path(self, name):
        return os.path.join(self.folder, name)

    def fresh(self, name):
        """The path of a folder that does not exist."""
        shutil.rmtree(self.path(name), ignore_errors=True)
        return self.path(name)

    def arguments(self, *flags):
        """Of a training in two stages with momentum, so that the optimiser has a state."""
        return ["train", "--data", self.data, "--hidden", "24,16", "--optimizer", "sgd", "--momentum", "0.9",
                "--stages", "2", "--batch-size", "32", "--log-every", "0", *flags]

    def start(self, *arguments, **options):
        return Run(self, arguments, **options)

    def finished(self, *arguments, **options):
        """A run that has ended with exit code 0."""
        run = self.start(*arguments, **options)
        self.assertEqual(run.wait(), 0, (run.command, run.text()))
        return run

    def verified(self, run):
        """The newest step of a folder, all checkpoints of which must be complete; -1 if there is none."""
        if not newest_of(run):
            return -1
        done = subprocess.run([PENSTOCK, "checkpoint", "verify", run], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return step_of(newest_of(run))


def main():
    # Ranks that are bound to all cores and spin keep a test of a busy ctest from running for seconds (each session has
    # its share of the processors, Linux 6.18). As root it takes precedence; its children do not.
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except PermissionError:
        pass
    unittest.main(module="__main__", argv=sys.argv[:1], verbosity=2)
