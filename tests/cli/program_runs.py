"""Base of the tests of the runtime's verbs: runs `penstock` on a small part of MNIST, as threads or under mpirun.

Usage of the tests: X_test.py PENSTOCK DATA [MPIRUN], with the program, the folder of the data, and mpirun if the build
has MPI.
"""

import atexit
import gzip
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = ""
DATA = ""
MPIRUN = ""

TRAIN_SAMPLES = 1634  # 51 batches of 32, and one of 2
TEST_SAMPLES = 130

# Lets the tests run as root and with more ranks than cores.
LAUNCH = ["--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader"]
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("OMPI_", "PMI", "SLURM_", "MASTER_", "TORCHELASTIC_"))
               and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
ENVIRONMENT.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
# The tuning cache of all runs of a test program; that of the user stays as it is.
ENVIRONMENT["XDG_CACHE_HOME"] = tempfile.mkdtemp()
atexit.register(shutil.rmtree, ENVIRONMENT["XDG_CACHE_HOME"], ignore_errors=True)

# Longer than any run, even on a busy machine.
WATCHDOG_S = 240


def can_run(*command):
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def can_trace():
    """Whether strace works here."""
    return can_run("strace", "-qq", "-e", "trace=none", "true")


def has_gloo():
    done = subprocess.run([PROGRAM, "doctor"], env=ENVIRONMENT, capture_output=True, text=True)
    return bool(re.search("Gloo +built in", done.stdout))


def of_mpi(test):
    """A test that needs a build with MPI. (The command line is read after the tests are declared.)"""
    def run(self):
        if not MPIRUN:
            self.skipTest("this build has no MPI")
        test(self)
    return run


def write_part(folder, stem, samples):
    """The first `samples` of a part of MNIST, not compressed."""
    for name, head, size in ((stem + "-images-idx3-ubyte", 16, 28 * 28), (stem + "-labels-idx1-ubyte", 8, 1)):
        with gzip.open(os.path.join(DATA, name + ".gz")) as whole:
            header, content = whole.read(head), whole.read(samples * size)
        with open(os.path.join(folder, name), "wb") as part:
            part.write(header[:4] + struct.pack(">I", samples) + header[8:] + content)


class InFolder(unittest.TestCase):
    """Every test has a folder of its own."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def read(self, *names):
        with open(self.path(*names)) as file:
            return file.read()

    def read_bytes(self, *names):
        with open(self.path(*names), "rb") as file:
            return file.read()

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return name

    def write_executable(self, name, text):
        InFolder.write(self, name, text)
        os.chmod(self.path(name), 0o755)
        return self.path(name)

    def wait_until(self, run, condition):
        until = time.monotonic() + WATCHDOG_S
        while not condition():
            self.assertIsNone(run.poll(), "the job has ended")
            self.assertLess(time.monotonic(), until, "nothing happens")
            time.sleep(0.005)

    def end(self, run):
        """Kills a process, and closes its pipes."""
        run.kill()
        run.wait()
        for pipe in filter(None, (run.stdout, run.stderr)):
            pipe.close()

    def damage(self, *names):
        """Flips the last bit of a file."""
        content = self.read_bytes(*names)
        with open(self.path(*names), "wb") as file:
            file.write(content[:-1] + bytes([content[-1] ^ 1]))


class VerbRuns(InFolder):
    """Runs of verbs that need no data set."""

    def command(self, arguments, ranks=None, program=None):
        return ([MPIRUN, "-n", str(ranks), *LAUNCH] if ranks else []) + [program or PROGRAM, *arguments]

    def run_program(self, *arguments, ranks=None, environment=None, program=None, stdout=subprocess.PIPE, **how):
        done = subprocess.run(self.command(arguments, ranks, program), cwd=self.folder, text=True, timeout=WATCHDOG_S,
                              stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE,
                              env={**ENVIRONMENT, **(environment or {})}, **how)
        return done.returncode, done.stdout, done.stderr

    def output_of(self, *arguments):
        code, out, err = self.run_program(*arguments)
        self.assertEqual((code, err), (0, ""), arguments)
        return out

    def complaint_of(self, *arguments, ranks=None, environment=None):
        """The one line of a misuse, without the program's name."""
        code, out, err = self.run_program(*arguments, ranks=ranks, environment=environment)
        self.assertEqual((code, out), (2, ""), (arguments, err))
        lines = err.splitlines()
        if ranks:
            lines = [line for line in lines if line.startswith("penstock: ")]
        self.assertEqual(len(lines), 1, err)
        self.assertTrue(lines[0].startswith("penstock: "), err)
        return lines[0][len("penstock: "):]

    def assert_refused(self, command, *cases):
        """Each case: arguments after those of `command`, and a text of the complaint about them."""
        for arguments, text in cases:
            with self.subTest(arguments=arguments):
                self.assertIn(text, self.complaint_of(*command, *arguments))


class ProgramRuns(VerbRuns):
    @classmethod
    def setUpClass(cls):
        cls.small_set = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.small_set)
        write_part(cls.small_set, "train", TRAIN_SAMPLES)
        write_part(cls.small_set, "t10k", TEST_SAMPLES)

    def train(self, *flags, data=None):
        """The arguments of a training on the small set; later flags take precedence."""
        return ["train", "--data", data or self.small_set, "--hidden", "32,16", *flags]

    def program_of_two_builds(self):
        """A program that is another build on rank 1, and the digests of the sources of both."""
        digest = re.search(r"sources ([0-9a-f]{12})\n", self.output_of("doctor"))[1]
        other = digest[6:] + digest[:6]
        runtime = self.read_bytes(os.path.dirname(PROGRAM), "..", "libexec", "penstock", "penstock-runtime")
        self.assertTrue(digest.encode() in runtime, "the program does not contain the digest of its sources")
        with open(self.write_executable("other", ""), "wb") as file:
            file.write(runtime.replace(digest.encode(), other.encode()))
        return self.write_executable("mixed", f"""#!/bin/sh
if [ "$OMPI_COMM_WORLD_RANK$RANK" = 1 ]; then exec {self.path("other")} "$@"; fi
exec {PROGRAM} "$@"
"""), digest, other

    def start(self, *arguments, ranks=None):
        """A run that the test itself ends; remaining processes are killed at the end of the test."""
        run = subprocess.Popen(self.command(arguments, ranks), cwd=self.folder, text=True, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
        self.addCleanup(self.end, run)
        return run

    def end(self, run):
        for pid in processes_of(run) if run.poll() is None else []:
            os.kill(pid, 9)
        super().end(run)

    def output_of(self, *arguments, ranks=None):
        code, out, err = self.run_program(*arguments, ranks=ranks)
        self.assertEqual(code, 0, (arguments, err))
        return out

    def sayings(self, err):
        """The program's errors and warnings, without info lines and the output of mpirun."""
        lines = [line for line in err.splitlines() if line.startswith("penstock: ")]
        return [line[len("penstock: "):] for line in lines if not line.startswith("penstock: info: ")]


def stored_tensors(checkpoint):
    """(dtype, shape, checksum) of all tensors of a checkpoint's directory, by kind and name, as its files have them."""
    with open(os.path.join(checkpoint, "manifest.json")) as file:
        files = [file for file in json.load(file)["files"] if file["kind"] != "text"]
    tensors = {}
    for record in files:
        with open(os.path.join(checkpoint, record["name"]), "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        checksums = header.pop("__metadata__")["xxh3_128"].split()
        ordered = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
        assert len(checksums) == len(ordered), record
        tensors.update({(record["kind"], name): (entry["dtype"], entry["shape"], checksum)
                        for (name, entry), checksum in zip(ordered, checksums)})
    return tensors


def processes_of(run):
    """The children of a running process: of mpirun, the ranks."""
    try:
        with open(f"/proc/{run.pid}/task/{run.pid}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:
        return []


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def still_running(pids, grace_s=10):
    """The processes that are still running after a while."""
    end = time.monotonic() + grace_s
    while any(map(is_running, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    return [pid for pid in pids if is_running(pid)]


def main():
    global PROGRAM, DATA, MPIRUN
    PROGRAM, DATA = map(os.path.abspath, sys.argv[1:3])
    MPIRUN = sys.argv[3] if len(sys.argv) > 3 else ""
    unittest.main(module="__main__", argv=sys.argv[:1], verbosity=2)
