#!/usr/bin/env python3
"""Writes goldens/safetensors_cases: files at the limits of the format, with the answers of the reference package.

    python3 -m venv build/safetensors-venv
    build/safetensors-venv/bin/pip install safetensors==0.8.0 numpy
    build/safetensors-venv/bin/python tests/checkpoint/make_safetensors_cases.py

answers.txt has a line for each file: its name, and `accepts` or `refuses`. The files written_*.safetensors are written
by the package itself.
"""
import json
import pathlib
import struct

import numpy
import safetensors
import safetensors.numpy

FOLDER = pathlib.Path(__file__).parent / "goldens" / "safetensors_cases"


def entry(dtype="F32", shape=(2,), begin=0, end=8):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def file(header, data=b"12345678", pad=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    text += pad
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def cases():
    w = {"w": entry()}
    text = json.dumps(w).encode()
    yield "plain", file(w)
    yield "spaces_after", file(w, pad=b"   ")
    yield "spaces_before", file(b"   " + text)
    yield "odd_length", file(w, pad=b" " * (3 if len(text) % 8 else 1))
    yield "other_order", file({"b": entry(begin=8, end=16), "a": entry()}, b"1" * 16)
    yield "extra_member", file({"w": {**entry(), "comment": {"a": [1, None]}}})
    yield "empty_name", file({"": entry()})
    yield "empty_metadata", file({"__metadata__": {}, **w})
    yield "metadata", file({"__metadata__": {"format": "pt"}, **w})
    yield "misaligned_i64", file({"a": entry("U8", (1,), 0, 1), "b": entry("I64", (1,), 1, 9)}, b"1" * 9)
    yield "rank_0", file({"w": entry("F32", (), 0, 4)}, b"1234")
    yield "no_elements", file({"w": entry("F32", (0, 3), 0, 0)}, b"")
    yield "no_tensors", file({}, b"")
    yield "nul_padding", file(w, pad=b"\0\0\0")
    yield "trailing_byte", file(w, b"123456789")
    yield "byte_short", file(w, b"1234567")
    yield "hole", file({"a": entry(), "b": entry(begin=12, end=20)}, b"1" * 20)
    yield "hole_at_begin", file({"a": entry(begin=4, end=12)}, b"1" * 12)
    yield "overlap", file({"a": entry(), "b": entry(begin=4, end=12)}, b"1" * 12)
    yield "same_bytes", file({"a": entry(), "b": entry()})
    yield "wrong_size", file({"w": entry(shape=(3,))})
    yield "overflow", file({"w": entry(shape=(2**62, 2**62, 16))})
    yield "negative_dimension", file({"w": entry(shape=(-2,))})
    yield "float_dimension", file(text.replace(b"[2]", b"[2.0]"))
    yield "unknown_dtype", file({"w": entry("C99")})
    yield "length_0", file(b"", b"")
    yield "length_beyond_file", file(w, length=10_000)
    yield "length_2_63", file(w, length=2**63)
    yield "length_over_100_mb", file(w, length=100_000_001)
    yield "metadata_number", file({"__metadata__": {"n": 3}, **w})
    yield "metadata_map", file({"__metadata__": {"n": {}}, **w})
    yield "bad_utf8", file(text.replace(b'"w"', b'"\xff"'))
    yield "deep", file(b"[" * 10_000, b"")
    yield "nan", file(text.replace(b"[2]", b"[NaN]"))
    yield "list", file(b"[]", b"")
    yield "end_before_begin", file({"w": entry(begin=8, end=0)})
    yield "duplicate_key", file(b'{"w":%s,"w":%s}' % ((json.dumps(entry()).encode(),) * 2))


def answer(path):
    try:
        safetensors.numpy.load_file(path)
        return "accepts"
    except Exception:  # every kind of refusal
        return "refuses"


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, data in cases():
        path = FOLDER / f"{name}.safetensors"
        path.write_bytes(data)
        lines.append(f"{name} {answer(path)}\n")
    (FOLDER / "answers.txt").write_text("".join(lines))
    numbers = numpy.arange(6).reshape(2, 3)
    mixed = {f"{kind}.{i}": numbers.astype(kind) for kind in ("bool", "uint8", "int8", "int16", "uint16", "float16",
             "int32", "uint32", "float32", "float64", "int64", "uint64") for i in (1, 0)}
    safetensors.numpy.save_file(mixed, FOLDER / "written_mixed.safetensors", {"format": "pt"})
    safetensors.numpy.save_file({}, FOLDER / "written_empty.safetensors")
    safetensors.numpy.save_file({"a \"b\"\n\u00e4": numbers.astype("float32"), "none": numbers[:0].astype("float32"),
                                 "one": numpy.array(7.5)}, FOLDER / "written_names.safetensors")
    print(f"{len(lines)} cases, {safetensors.__version__}")


if __name__ == "__main__":
    main()
