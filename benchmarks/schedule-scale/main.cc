// How long does it take to plan a step of millions of instructions? See README.md beside this.
//
//   schedule-scale            the table, and the slope over m
//   schedule-scale P M V      one shape, as "instructions seconds": for beside_torch.py
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>

#include <penstock/schedule/schedule.h>

namespace {

namespace ps = penstock;

/// What one shape takes, in seconds.
struct Figures {
  std::size_t instructions = 0;  // after lowering
  double generate = 0, lower = 0, validate = 0, simulate = 0;
  double total() const { return generate + lower + validate + simulate; }
};

/// Processor time, so that others on the machine do not count against it.
double seconds_of(const auto& work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

Figures plan(const ps::ScheduleShape& shape) {
  Figures figures;
  ps::Schedule schedule;
  figures.generate = seconds_of([&] { schedule = ps::generate("interleaved", shape); });
  figures.lower = seconds_of([&] { schedule = ps::lower(schedule); });
  figures.validate = seconds_of([&] { ps::validate(schedule).require_ok(schedule); });
  figures.simulate = seconds_of([&] { ps::simulate(schedule, ps::StageCosts::unit()); });
  figures.instructions = schedule.instruction_count();
  return figures;
}

/// The best of several runs: others share the machine's caches.
Figures best_of(int runs, const ps::ScheduleShape& shape) {
  Figures best = plan(shape);
  for (int run = 1; run < runs; ++run)
    if (const Figures again = plan(shape); again.total() < best.total()) best = again;
  return best;
}

/// The most memory this process has held, in bytes: from Linux's account of it; 0 where there is none.
double peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::strtod(line.c_str() + 6, nullptr) * 1024;
  return 0;
}

void print(const ps::ScheduleShape& shape, const Figures& figures) {
  std::printf("p %2d  m %4d  v %d  %9zu  %8.1f %8.1f %8.1f %8.1f  %8.1f ms  %6.1f M instructions/s\n", shape.ranks,
              shape.micro_batches, shape.chunks, figures.instructions, 1e3 * figures.generate, 1e3 * figures.lower,
              1e3 * figures.validate, 1e3 * figures.simulate, 1e3 * figures.total(),
              1e-6 * static_cast<double>(figures.instructions) / figures.total());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4) {
    const Figures figures = best_of(5, {std::atoi(argv[1]), std::atoi(argv[2]), std::atoi(argv[3])});
    std::printf("%zu %.6f\n", figures.instructions, figures.total());
    return 0;
  }
  std::printf("interleaved                 instructions  generate    lower    validate simulate     total\n");
  // A line through (log instructions, log seconds), by least squares.
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (int m = 64; m <= 4096; m *= 2) {
    const ps::ScheduleShape shape{.ranks = 64, .micro_batches = m, .chunks = m == 4096 ? 4 : 2};
    const Figures figures = best_of(m <= 512 ? 5 : 2, shape);
    print(shape, figures);
    const double a = std::log(static_cast<double>(figures.instructions)), b = std::log(figures.total());
    n += 1, x += a, y += b, xx += a * a, xy += a * b;
    if (m < 4096) continue;
    std::printf("\nseconds grow with instructions to the power of %.2f\n", (n * xy - x * y) / (n * xx - x * x));
    std::printf(
        "an instruction takes %zu bytes; at its peak this process held %.0f bytes per instruction of the last shape\n",
        sizeof(ps::Instruction), peak_bytes() / static_cast<double>(figures.instructions));
  }
}
