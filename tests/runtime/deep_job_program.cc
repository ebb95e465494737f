// The deep job as a program: `deep_job_program STAGES` runs every schedule over that many ranks, threads or processes,
// and prints a line for each case: its losses and a hash of all parameters, to compare ways of running it.
#include <cstdlib>
#include <iostream>

#include "tests/runtime/deep_job.h"
#include "tests/runtime/outcome_line.h"

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
        test::print_outcome(one.name(), outcome.losses, outcome.parameters);
      }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
