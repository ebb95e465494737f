// Runs the jobs of auto_jobs.h whose ranks are as many as the processes: `mpirun -n 2 auto_jobs_program`.
#include <iostream>

#include "penstock/transport/joining/launch_environment.h"
#include "tests/autotune/auto_jobs.h"

int main(int, char**) {
  using namespace penstock;
  try {
    int run = 0;
    for (const test::AutoJob& job : test::auto_jobs()) {
      if (2 * job.replicas != joining::launched_as().size) continue;
      World world({.stages = 2, .replicas = job.replicas});
      const std::string difference = test::difference_of(world, job);
      world.finish();
      if (!difference.empty()) return std::cerr << difference << "\n", 1;
      ++run;
    }
    return run > 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    std::_Exit(1);  // at once: other ranks may still compute
  }
}
