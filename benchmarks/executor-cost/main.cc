// What does the executor take for an instruction, besides doing it? See README.md beside this.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <penstock/base/clock.h>
#include <penstock/rank/executor.h>
#include <penstock/schedule/schedule.h>
#include <penstock/transport/progress.h>

namespace {

namespace ps = penstock;

/// Keeps the compiler from leaving out what has no effect.
void keep() { asm volatile("" ::: "memory"); }

/// Does nothing, and has every message at once.
struct EmptyHandler {
  void begin(const ps::Instruction&) { keep(); }
  ps::rank::Arrival receive(const ps::Instruction&) {
    keep();
    return {};
  }
  void perform(const ps::Instruction&) { keep(); }
};

/// Tells where it is, as a rank of a pipeline does.
struct ReportingHandler : EmptyHandler {
  ps::transport::Progress progress;
  void begin(const ps::Instruction& instruction) { progress.report(ps::rank::position_of(instruction)); }
};

/// The same by way of a string, to compare.
struct StringHandler : EmptyHandler {
  ps::transport::Progress progress;
  void begin(const ps::Instruction& instruction) {
    ps::Position position;
    const std::string text = to_string(instruction);
    std::strncpy(position.instruction, text.c_str(), sizeof(position.instruction) - 1);
    progress.report(position);
  }
};

/// execute() without the recorder and its clock.
template <class Handler>
void execute_unrecorded(const ps::rank::Program& program, Handler& handler) {
  for (const ps::rank::Program::Action& action : program.actions()) {
    handler.begin(action.instruction);
    for (std::uint32_t i = action.first_receive; i < action.end_receive; ++i) handler.receive(program.receive(i));
    handler.perform(action.instruction);
  }
}

/// Nanoseconds per instruction: the best of many rounds, as others share the machine.
double ns_per_instruction(const ps::rank::Program& program, const auto& step) {
  constexpr int rounds = 200;
  constexpr int steps = 20;
  double best = 1e300;
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t begin = ps::now_ns();
    for (int i = 0; i < steps; ++i) step();
    best = std::min(best, static_cast<double>(ps::now_ns() - begin) / steps);
  }
  return best / static_cast<double>(program.actions().size());
}

struct Figures {
  double unrecorded = 0;
  double recorded = 0;
};

template <class Handler>
Figures measure(const char* name, const ps::rank::Program& program) {
  Handler handler;
  ps::Recorder recorder;
  std::uint64_t number = 0;
  Figures figures;
  figures.unrecorded = ns_per_instruction(program, [&] { execute_unrecorded(program, handler); });
  figures.recorded = ns_per_instruction(program, [&] {
    recorder.begin_step(number++);
    execute(program, handler, recorder);
    recorder.end_step();
  });
  std::printf("%-34s %10.1f %10.1f\n", name, figures.unrecorded, figures.recorded);
  return figures;
}

}  // namespace

int main() {
  const ps::Schedule schedule = lower(ps::generate("1f1b", {.ranks = 2, .micro_batches = 64}));
  const ps::Dependencies dependencies(schedule, links_of(schedule));
  const ps::rank::Program program(schedule.orders[0], dependencies);
  std::printf("1f1b, p = 2, m = 64, rank 0: %zu instructions, and receives that they wait for; ns per instruction\n\n",
              program.actions().size());
  std::printf("%-34s %10s %10s\n", "handler", "unrecorded", "recorded");
  const Figures empty = measure<EmptyHandler>("empty", program);
  const Figures telling = measure<ReportingHandler>("that tell their position", program);
  measure<StringHandler>("... formatted as a string", program);

  constexpr double step_ns = 50e6;
  constexpr double instructions = 40;
  const double recorder = empty.recorded - empty.unrecorded;
  std::printf("\nthe executor takes %.3f us per instruction: position, receives and recorder together\n",
              telling.recorded * 1e-3);
  std::printf("the recorder takes %.1f ns of it: %.4f %% of a step of 50 ms with 40 instructions\n", recorder,
              100 * recorder * instructions / step_ns);
}
