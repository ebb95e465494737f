#!/usr/bin/env python3
"""penstock/penstock.h includes neither the large headers of LibTorch, which add ten seconds to every compilation, nor
internal headers of Penstock.

    umbrella_headers_test.py CXX SRC TORCH_INCLUDE_FOLDER...
"""
import re
import subprocess
import sys

FORBIDDEN = {
    r"/torch/torch\.h$": "all of LibTorch",
    r"/torch/types\.h$": "all of ATen: base/tensor.h declares torch::Tensor",
    r"/ATen/ATen\.h$": "all of ATen: base/tensor.h declares torch::Tensor",
    r"/torch/nn/": "modules: users include those that they use",
    r"/torch/optim/": "optimisers: users include those that they use",
    r"/penstock/transport/(mailbox|progress|devices/.*|joining/.*|processes/.*)\.h$": "the inside of transports",
    r"/(nlohmann|spdlog|CLI)/": "a library that is no part of the interface",
}


def main():
    compiler, source, *torch = sys.argv[1:]
    command = [compiler, "-std=c++20", "-M", "-x", "c++", "-I", source]
    for folder in torch:
        command += ["-isystem", folder]
    listing = subprocess.run([*command, f"{source}/penstock/penstock.h"], capture_output=True, text=True, check=True)
    headers = [instruction for instruction in listing.stdout.replace("\\\n", " ").split() if instruction.endswith(".h")]
    assert any(header.endswith("/ATen/core/TensorBody.h") for header in headers), "the listing is not what it should be"
    bad = [f"{header}: {why}" for header in headers for pattern, why in FORBIDDEN.items() if re.search(pattern, header)]
    print("\n".join(bad) or f"{len(headers)} headers, none of them too many")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
