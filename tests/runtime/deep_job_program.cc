// The deep job as a program: `deep_job_program STAGES` runs every schedule over that many ranks, threads or processes,
// and prints a line for each case: its losses and a sum over the bits of every parameter. Two ways of running it can be
// compared as text.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "tests/runtime/deep_job.h"

namespace {

/// FNV-1a over the bits.
std::uint64_t digest(const std::map<std::string, torch::Tensor>& parameters) {
  std::uint64_t hash = 14695981039346656037ull;
  for (const auto& [name, value] : parameters) {
    const torch::Tensor flat = value.contiguous().flatten();
    for (std::int64_t i = 0; i < flat.numel(); ++i) {
      std::uint32_t bits;
      std::memcpy(&bits, flat.data_ptr<float>() + i, sizeof bits);
      hash = (hash ^ bits) * 1099511628211ull;
    }
  }
  return hash;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  using namespace penstock;
  try {
    World world({.stages = std::atoi(argv[1])});
    for (const WeightGradients mode : {WeightGradients::stream, WeightGradients::fused})
      for (const test::DeepCase& one : test::deep_cases(world.stages(), mode)) {
        const test::DeepOutcome outcome = test::run_deep_job(world, one);
        for (const Pipeline::Peak& peak : outcome.peaks)
          require<Failure>(peak.measured == peak.predicted, one.name(), ": rank ", peak.rank.value(), " held ",
                           peak.measured, " micro-batches, predicted were ", peak.predicted);
        if (!world.is_main()) continue;
        std::printf("%s:", one.name().c_str());
        for (double loss : outcome.losses) std::printf(" %a", loss);
        std::printf(" %016llx\n", static_cast<unsigned long long>(digest(outcome.parameters)));
      }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
