"""Penstock for Spack: docs/hpc.md has the commands."""
from pathlib import Path

from spack.package import *
from spack_repo.builtin.build_systems.cmake import CMakePackage


class Penstock(CMakePackage):
    """Plans, draws, validates and executes pipeline-parallel training, with LibTorch."""

    # The clone that contains this recipe; its branch main.
    git = Path(__file__).resolve().parents[4].as_uri()

    license("Apache-2.0")
    version("main", branch="main")

    variant("torch", default=True, description="The runtime, which needs LibTorch; without: planning only")
    variant("mpi", default=True, when="+torch", description="Processes joined by MPI")
    variant("blis", default=False, when="+torch", description="Products of BLIS among the tuned CPU kernels")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("nlohmann-json@3.11:")
    depends_on("cli11@2.1:")
    depends_on("spdlog@1.10:")
    depends_on("xxhash")
    depends_on("pcre2")
    depends_on("utf8proc")
    depends_on("sentencepiece")
    with when("+torch"):
        depends_on("py-torch@2.5: +distributed")
        depends_on("tomlplusplus@3.2:")
        depends_on("zlib-api")
    depends_on("mpi", when="+mpi")
    depends_on("blis threads=none", when="+blis")

    def cmake_args(self):
        arguments = [self.define("PENSTOCK_TESTS", False), self.define("PENSTOCK_UNITY", True),
                     self.define_from_variant("PENSTOCK_TORCH", "torch")]
        if self.spec.satisfies("+torch"):
            arguments += [self.define(f"PENSTOCK_{name.upper()}", "ON" if self.spec.satisfies(f"+{name}") else "OFF")
                          for name in ("mpi", "blis")]
        return arguments
