// A program that uses the planning library: 1F1B takes as long as GPipe and holds fewer micro-batches.
#include <iostream>

#include <penstock/schedule/schedule.h>

namespace ps = penstock;

int main() {
  const ps::ScheduleShape shape{.ranks = 4, .micro_batches = 8};
  const ps::Schedule gpipe = ps::lower(ps::generate("gpipe", shape));
  const ps::Schedule early = ps::lower(ps::generate("1f1b", shape));
  const ps::Validation validation = ps::validate(early);
  validation.require_ok(early);
  std::cout << ps::timeline_grid(early);
  const double difference =
      ps::simulate(gpipe, ps::StageCosts::unit()).makespan - ps::simulate(early, ps::StageCosts::unit()).makespan;
  const int held = validation.peak_activations.at(0);
  std::cout << "rank 0 holds " << held << " micro-batches, the step is " << difference << " shorter\n";
  return difference == 0 && held == 4 ? 0 : 1;
}
