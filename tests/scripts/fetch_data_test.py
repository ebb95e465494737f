"""scripts/fetch_data.sh with a local mirror in place of the network.

Usage: fetch_data_test.py REPOSITORY
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = ""
MNIST = ["t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz", "train-images-idx3-ubyte.gz",
         "train-labels-idx1-ubyte.gz"]


class FetchData(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.mirror = os.path.join(self.folder, "mirror")
        self.data = os.path.join(self.folder, "data")
        shutil.copytree(os.path.join(REPOSITORY, "data", "mnist"), self.mirror)

    def fetch(self, *sets, mirror=None):
        environment = {**os.environ, "PENSTOCK_DATA": self.data, "PENSTOCK_MIRROR": "file://" + (mirror or self.mirror)}
        done = subprocess.run([os.path.join(REPOSITORY, "scripts", "fetch_data.sh"), *sets], env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.returncode, done.stdout, done.stderr

    def files(self):
        return sorted(os.listdir(os.path.join(self.data, "mnist")))

    def test_fetches_what_is_not_there(self):
        code, out, err = self.fetch("mnist")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(self.files(), MNIST)
        self.assertEqual(out.count("fetching file://"), 4)
        # Again, without the mirror: nothing to do.
        code, out, err = self.fetch("mnist", mirror="/nowhere")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(out.count(" is there\n"), 4)
        # A damaged file is fetched again.
        with open(os.path.join(self.data, "mnist", MNIST[0]), "ab") as file:
            file.write(b"more")
        self.assertEqual(self.fetch("mnist")[1].count("fetching"), 1)

    def test_another_file_is_refused_and_leaves_nothing(self):
        with open(os.path.join(self.mirror, MNIST[2]), "ab") as file:
            file.write(b"more")
        code, _, err = self.fetch("mnist")
        self.assertEqual(code, 1)
        self.assertRegex(err,
                         r"train-images-idx3-ubyte.gz has SHA-256 [0-9a-f]{64}, not 440fcabf[0-9a-f]+: it is another")
        self.assertEqual(self.files(), [])

    def test_a_mirror_that_is_not_there(self):
        code, _, err = self.fetch("cifar10", mirror="/nowhere")
        self.assertEqual(code, 1)
        self.assertIn("cannot fetch file:///nowhere/cifar-10-binary.tar.gz: is there a network?", err)
        self.assertEqual(os.listdir(os.path.join(self.data, "cifar10")), [])

    def test_a_part_of_cifar10_is_left_alone(self):
        os.makedirs(os.path.join(self.data, "cifar10"))
        open(os.path.join(self.data, "cifar10", "data_batch_1_first.bin"), "w").close()
        code, out, _ = self.fetch("cifar10", mirror="/nowhere")
        self.assertEqual((code, out), (0, f"fetch_data: {self.data}/cifar10 is there\n"))

    def test_arguments(self):
        self.assertEqual(self.fetch()[0], 2)
        code, out, err = self.fetch("mnist", "imagenet")
        self.assertEqual((code, out, err), (2, "", "fetch_data: there is no set 'imagenet': mnist, cifar10, text\n"))
        self.assertFalse(os.path.exists(self.data))


if __name__ == "__main__":
    if not shutil.which("curl") or not shutil.which("bash"):
        print("skipped: curl and bash are needed")
        sys.exit(77)
    REPOSITORY = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1], verbosity=2)
