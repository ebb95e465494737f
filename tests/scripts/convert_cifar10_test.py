"""The conversion of CIFAR-10's Python version to the binary one, which executes nothing that a pickle names."""
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest

SCRIPT = pathlib.Path(sys.argv.pop(1)) / "scripts/convert_cifar10.py"


def string(content):
    """A str of Python 2."""
    return b"T" + struct.pack("<i", len(content)) + content


def batch(labels, pixels):
    """The opcodes that Python 2 with NumPy writes with protocol 2 for {'data': array, 'labels': list}."""
    array = (b"cnumpy.core.multiarray\n_reconstruct\n" + b"cnumpy\nndarray\n" + b"K\x00\x85" + string(b"b") + b"\x87R"
             + b"(K\x01" + b"M" + struct.pack("<H", len(labels)) + b"M" + struct.pack("<H", 3072) + b"\x86"
             + b"cnumpy\ndtype\n" + string(b"u1") + b"K\x00K\x01\x87R"
             + b"(K\x03" + string(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb" + b"\x89" + string(pixels)
             + b"tb")
    listed = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + string(b"data") + array + string(b"labels") + listed + b"u."


class Trap:
    def __reduce__(self):
        return os.mkdir, ("trapped",)


class Convert(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.batches = self.folder / "cifar-10-batches-py"
        self.batches.mkdir()

    def convert(self, *arguments):
        run = subprocess.run([sys.executable, str(SCRIPT), *map(str, arguments)], cwd=self.folder, capture_output=True,
                             text=True, check=False)
        return run.returncode, run.stdout, run.stderr

    def test_batches_of_python_2(self):
        images = [bytes((7 * sample + place) % 256 for place in range(3072)) for sample in range(4)]
        (self.batches / "data_batch_1").write_bytes(batch([3, 9], images[0] + images[1]))
        (self.batches / "data_batch_2").write_bytes(batch([0], images[2]))
        (self.batches / "test_batch").write_bytes(batch([5], images[3]))
        names = {"label_names": ["airplane", "automobile"]}
        (self.batches / "batches.meta").write_bytes(pickle.dumps(names, protocol=2))
        code, out, err = self.convert(self.folder)
        self.assertEqual((code, err), (0, ""))
        made = self.folder / "cifar-10-batches-bin"
        self.assertIn(f"{made / 'data_batch_1.bin'}: 2 images\n", out)
        self.assertEqual((made / "data_batch_1.bin").read_bytes(), b"\3" + images[0] + b"\x09" + images[1])
        self.assertEqual((made / "data_batch_2.bin").read_bytes(), b"\0" + images[2])
        self.assertEqual((made / "test_batch.bin").read_bytes(), b"\5" + images[3])
        self.assertEqual((made / "batches.meta.txt").read_text(), "airplane\nautomobile\n")
        # The same from the archive, to another folder.
        with tarfile.open(self.folder / "cifar-10-python.tar.gz", "w:gz") as archive:
            archive.add(self.batches, "cifar-10-batches-py")
        self.assertEqual(self.convert("cifar-10-python.tar.gz", "other")[0], 0)
        for name in ("data_batch_1.bin", "data_batch_2.bin", "test_batch.bin", "batches.meta.txt"):
            self.assertEqual((self.folder / "other" / name).read_bytes(), (made / name).read_bytes())

    def test_nothing_that_a_pickle_asks_for_is_run(self):
        (self.batches / "data_batch_1").write_bytes(pickle.dumps({"data": Trap(), "labels": []}, protocol=2))
        code, _, err = self.convert(self.batches)
        self.assertEqual(code, 1)
        self.assertIn("'data_batch_1' in", err)
        self.assertIn("mkdir, which no batch of CIFAR-10 needs", err)
        self.assertEqual(os.listdir(self.folder), ["cifar-10-batches-py"])

    def test_what_is_no_batch_is_refused_in_one_line(self):
        whole = batch([3], bytes(3072))
        for content, complaint in ((whole[:100], ""), (b"", ""), (b"hello", ""), (pickle.dumps([1]), "no dictionary"),
                                   (pickle.dumps({"data": 1}), "it has no 'data' (an array) and 'labels' (a list)"),
                                   (batch([3, 4], bytes(3072)), "3072 bytes for each label are wanted"),
                                   (batch([30], bytes(3072)), "labels must be 0 to 9")):
            (self.batches / "data_batch_1").write_bytes(content)
            code, out, err = self.convert(self.batches)
            self.assertEqual((code, out), (1, ""), err)
            self.assertRegex(err, r"^convert_cifar10: 'data_batch_1' in '[^']*': .*\n$")
            self.assertIn(complaint, err)
            self.assertFalse((self.folder / "cifar-10-batches-bin").exists())
        self.assertEqual(self.convert()[0], 2)
        self.assertEqual(self.convert("--help")[0], 0)
        code, _, err = self.convert("nowhere")
        self.assertEqual(code, 1)
        self.assertIn("No such file or directory: 'nowhere'", err)


if __name__ == "__main__":
    unittest.main()
