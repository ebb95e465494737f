#!/usr/bin/env python3
"""Converts the Python version of CIFAR-10 to the binary version, which Penstock reads.

    scripts/convert_cifar10.py FROM [TO]
      FROM  the folder cifar-10-batches-py, a folder that contains it, or the archive cifar-10-python.tar.gz
      TO    a folder for data_batch_1.bin to data_batch_5.bin, test_batch.bin and batches.meta.txt; by default
            cifar-10-batches-bin beside the batches that were found

The Python version is pickled, and unpickling may execute code that the file names. Therefore this script uses an
unpickler that accepts byte arrays only and refuses any other file. It does not need NumPy.
"""
import io
import os
import pathlib
import pickle
import sys
import tarfile
import tempfile

PIXELS = 3 * 32 * 32
MOST_BYTES = 1 << 28


class ConversionError(Exception):
    pass


class Bytes:
    """An array of bytes as NumPy pickles it; stores only the shape and the bytes."""

    def __setstate__(self, state):
        _version, self.shape, kind, by_column, self.bytes = state
        if not isinstance(kind, ByteType) or kind.name not in ("u1", "uint8") or by_column:
            raise ConversionError("an array that is not of bytes, row by row")
        if isinstance(self.bytes, str):
            self.bytes = self.bytes.encode("latin1")


class ByteType:
    def __init__(self, name, *_):
        self.name = name.decode() if isinstance(name, bytes) else name

    def __setstate__(self, state):
        pass


def encode(text, encoding):
    """Python 3 writes bytes of protocol 2 as text."""
    if encoding != "latin1":
        raise ConversionError(f"bytes in the encoding {encoding!r}")
    return text.encode("latin1")


class Unpickler(pickle.Unpickler):
    KNOWN = {("numpy.core.multiarray", "_reconstruct"): lambda *_: Bytes(),
             ("numpy._core.multiarray", "_reconstruct"): lambda *_: Bytes(),
             ("numpy", "ndarray"): Bytes,
             ("numpy", "dtype"): ByteType,
             ("_codecs", "encode"): encode}

    def find_class(self, module, name):
        if (module, name) not in self.KNOWN:
            raise ConversionError(f"it asks for {module}.{name}, which no batch of CIFAR-10 needs")
        return self.KNOWN[(module, name)]

    def persistent_load(self, pid):
        raise ConversionError("it refers to something outside")


def load(content):
    batch = Unpickler(io.BytesIO(content), encoding="bytes").load()
    if not isinstance(batch, dict):
        raise ConversionError("it holds no dictionary")
    return {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}


def records(content):
    """The records of the binary version: a label, then the red, green and blue pixels, row by row."""
    batch = load(content)
    data, labels = batch.get("data"), batch.get("labels")
    if not isinstance(data, Bytes) or not isinstance(labels, list):
        raise ConversionError("it has no 'data' (an array) and 'labels' (a list)")
    if tuple(data.shape) != (len(labels), PIXELS) or len(data.bytes) != len(labels) * PIXELS:
        raise ConversionError(f"{len(labels)} labels and data of shape {tuple(data.shape)}: "
                              f"{PIXELS} bytes for each label are wanted")
    if any(type(label) is not int or not 0 <= label < 10 for label in labels):
        raise ConversionError("labels must be 0 to 9")
    return b"".join(bytes([label]) + data.bytes[i * PIXELS:(i + 1) * PIXELS] for i, label in enumerate(labels))


def wanted(name):
    return name == "test_batch" or name.startswith("data_batch_") and name.removeprefix("data_batch_").isdigit()


def batches_of_folder(folder):
    """The batches by name, the class names, and the folder with the batches."""
    for place in (folder, folder / "cifar-10-batches-py", folder / "cifar10", folder / "cifar10/cifar-10-batches-py"):
        found = sorted(path for path in place.glob("*_batch*") if wanted(path.name)) if place.is_dir() else []
        if found:
            meta = place / "batches.meta"
            names = meta.read_bytes() if meta.is_file() else None
            return {path.name: path.read_bytes() for path in found}, names, place
    raise ConversionError(f"no data_batch_1 to data_batch_5 and test_batch in '{folder}'")


def batches_of_archive(archive):
    found, meta = {}, None
    with tarfile.open(archive) as files:
        for member in files:
            name = os.path.basename(member.name)
            if member.isfile() and member.size <= MOST_BYTES and (wanted(name) or name == "batches.meta"):
                content = files.extractfile(member).read()
                if name == "batches.meta":
                    meta = content
                else:
                    found[name] = content
    if not found:
        raise ConversionError(f"no batches of CIFAR-10's Python version in '{archive}'")
    return found, meta, archive


def class_names(meta):
    names = load(meta).get("label_names", [])
    return "".join((name.decode() if isinstance(name, bytes) else str(name)) + "\n" for name in names)


def write(path, content):
    """Writes a temporary file and renames it, so that the file is never incomplete."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.chmod(name, 0o644)
    os.replace(name, path)


def convert(source, target):
    batches, meta, place = batches_of_folder(source) if source.is_dir() else batches_of_archive(source)
    target = target or place.parent / "cifar-10-batches-bin"
    converted = {}
    for name, content in sorted(batches.items()):
        try:
            converted[name + ".bin"] = records(content)
        except (ConversionError, pickle.UnpicklingError, EOFError, ValueError, TypeError, IndexError, AttributeError,
                KeyError) as error:
            raise ConversionError(f"'{name}' in '{place}': {error}") from None
    if meta is not None:
        converted["batches.meta.txt"] = class_names(meta).encode()
    target.mkdir(parents=True, exist_ok=True)
    for name, content in converted.items():
        write(target / name, content)
        if name.endswith(".bin"):
            print(f"convert_cifar10: {target / name}: {len(content) // (PIXELS + 1)} images")


def main(arguments):
    if any(argument in ("-h", "--help") for argument in arguments):
        print(__doc__.strip())
        return 0
    if len(arguments) not in (1, 2) or arguments[0].startswith("-"):
        print("usage: scripts/convert_cifar10.py FROM [TO]", file=sys.stderr)
        return 2
    try:
        convert(pathlib.Path(arguments[0]), pathlib.Path(arguments[1]) if len(arguments) == 2 else None)
    except (ConversionError, OSError, tarfile.TarError) as error:
        print(f"convert_cifar10: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
