#!/usr/bin/env python3
"""Lets system calls of a real process that saves a checkpoint fail, by strace, and fills a real disk.

Usage: system_calls_test.py SAVE_PROGRAM PENSTOCK [--all]

By default every seventh call is tried; --all tries every one. Ends with 77, which means skipped, without strace or
where processes cannot be traced.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SAVE = PENSTOCK = ""
STRIDE = 7
CALLS = ["openat", "write", "fsync", "close", "mkdir", "rename", "unlinkat", "flock"]
ERRORS = {"ENOSPC": 28, "EIO": 5, "EDQUOT": 122}


def strace(folder, *options):
    """Saves a checkpoint of step 3 under strace. Returns the exit code, the output, the errors and the log of calls."""
    log = os.path.join(folder, "calls.log")
    done = subprocess.run(["strace", "-f", "-qq", "-y", "-o", log, *options, SAVE, folder + "/run", "3", "3"],
                          capture_output=True, text=True, timeout=120)
    with open(log) as file:
        return done.returncode, done.stdout, done.stderr, file.read()


def verify(folder):
    return subprocess.run([PENSTOCK, "checkpoint", "verify", os.path.join(folder, "run")], capture_output=True,
                          text=True, timeout=60)


class SystemCalls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.base = os.path.join(cls.folder, "base")
        os.mkdir(cls.base)
        subprocess.run([SAVE, os.path.join(cls.base, "run"), "1", "2"], check=True, capture_output=True)

    context = ""

    def _formatMessage(self, message, standard):
        return f"{self.context}: " + super()._formatMessage(message, standard)

    def fresh(self):
        """A folder with checkpoints of steps 1 and 2."""
        shutil.rmtree(os.path.join(self.folder, "now"), ignore_errors=True)
        return shutil.copytree(self.base, os.path.join(self.folder, "now"))

    def places(self):
        """All calls of a save that concern its folder: (name, number among the calls of that name)."""
        folder = self.fresh()
        code, _, err, log = strace(folder, "-e", "trace=" + ",".join(CALLS))
        self.assertEqual(code, 0, err)
        counts, found = {}, []
        for line in log.splitlines():
            call = re.match(r"(?:\d+ +)?(\w+)\(", line)
            if not call:
                continue
            counts[call[1]] = counts.get(call[1], 0) + 1
            if folder + "/run" in line:
                found.append((call[1], counts[call[1]]))
        return found

    def newest_of(self, folder):
        """The step of the newest checkpoint; all must be complete."""
        done = verify(folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return max(int(step) for step in re.findall(r"step-(\d+)", done.stdout))

    def goes_on(self, folder, newest):
        """The next job continues, and removes what the former one has left."""
        subprocess.run([SAVE, os.path.join(folder, "run"), str(newest + 1), str(newest + 2)], check=True,
                       capture_output=True)
        self.assertEqual(sorted(os.listdir(os.path.join(folder, "run"))),
                         [".lock", f"step-{newest + 1:08}", f"step-{newest + 2:08}"])

    def each(self, injection):
        places = self.places()
        self.assertGreater(len(places), 60)
        for name, number in places[::STRIDE]:
            folder = self.fresh()
            self.context = f"{injection} at {name} number {number}"
            yield name, folder, *strace(folder, "-e", "trace=" + name, "-e",
                                        f"inject={name}:{injection}:when={number}")
            self.goes_on(folder, self.newest_of(folder))

    def test_death_at_a_call_leaves_a_complete_checkpoint(self):
        for _, folder, code, out, err, _ in self.each("signal=KILL"):
            self.assertIn(code, (-9, 137), err)
            newest = self.newest_of(folder)
            self.assertIn(newest, (2, 3))
            self.assertTrue(newest == 3 or "durable" not in out)

    def test_an_error_of_a_call_is_named_and_leaves_the_former_checkpoint(self):
        for error, number in ERRORS.items():
            for name, folder, code, _, err, _ in self.each(f"error={error}"):
                if code == 0:  # what is done about old checkpoints, and the reading of them
                    self.assertEqual(self.newest_of(folder), 3, name)
                    continue
                self.assertIn(code, (1, 2), err)  # 2: the folder cannot be read
                self.assertEqual(err.count("\n"), 1, err)
                self.assertIn(f"(errno {number})", err)
                self.assertIn(folder + "/run", err)
                self.assertFalse([entry for entry in os.listdir(folder + "/run") if entry.startswith(".tmp-")], err)

    def test_an_interruption_is_not_noticed(self):
        for _, folder, code, _, err, _ in self.each("error=EINTR"):
            self.assertEqual((code, err, self.newest_of(folder)), (0, "", 3))

    def test_a_full_disk_leaves_the_former_checkpoint(self):
        disk = os.path.join(self.folder, "disk")
        os.mkdir(disk)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", disk], capture_output=True).returncode:
            self.skipTest("no file system can be mounted here")
        try:
            self.assertEqual(subprocess.run([SAVE, disk + "/run", "1", "2"], capture_output=True).returncode, 0)
            left = os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize
            with open(disk + "/filler", "wb") as file:
                file.write(bytes(left - 12 * 1024))
            done = subprocess.run([SAVE, disk + "/run", "3", "3"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertRegex(done.stderr,
                             r"^'.*/run/\.tmp-3-\w+/.*' cannot be \w+.*: No space left on device \(errno 28\)")
            self.assertEqual(sorted(os.listdir(disk + "/run")), [".lock", "step-00000001", "step-00000002"])
            self.assertEqual(self.newest_of(disk), 2)
            os.remove(disk + "/filler")
            self.goes_on(disk, 2)
        finally:
            subprocess.run(["umount", disk], check=True)


if __name__ == "__main__":
    SAVE, PENSTOCK = (os.path.abspath(path) for path in sys.argv[1:3])
    if "--all" in sys.argv[3:]:
        STRIDE = 1
    if subprocess.run("strace -qq -e trace=none true", shell=True, capture_output=True).returncode:
        print("skipped: processes cannot be traced by strace here")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
