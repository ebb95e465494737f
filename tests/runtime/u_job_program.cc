// The U-shaped job as a program: `u_job_program STAGES` runs every schedule over that many ranks, threads or processes,
// in both precisions, and prints a line for each case: its losses and a sum over the bits of all parameters and buffers.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "tests/runtime/u_job.h"

namespace {

/// FNV-1a over the bytes.
std::uint64_t digest(const std::map<std::string, torch::Tensor>& state) {
  std::uint64_t hash = 14695981039346656037ull;
  for (const auto& [name, value] : state) {
    const torch::Tensor flat = value.contiguous();
    const auto* bytes = static_cast<const unsigned char*>(flat.const_data_ptr());
    for (std::size_t i = 0; i < flat.nbytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211ull;
  }
  return hash;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  using namespace penstock;
  try {
    World world({.stages = std::atoi(argv[1])});
    for (const Precision precision : {Precision::fp32, Precision::bf16})
      for (const test::UCase& one : test::u_cases(world.stages(), precision)) {
        if (one.micro_batches != 5 || (precision == Precision::bf16 && !one.recompute)) continue;
        const test::UOutcome outcome = test::run_u_job(world, one);
        if (!world.is_main()) continue;
        std::printf("%s:", one.name().c_str());
        for (double loss : outcome.losses) std::printf(" %a", loss);
        std::printf(" %016llx\n", static_cast<unsigned long long>(digest(outcome.state)));
      }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
