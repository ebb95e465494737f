// Should a rank that waits spin or sleep, on a machine that is quiet and on one that is not? See README.md beside this.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <penstock/base/clock.h>
#include <penstock/rank/executor.h>
#include <penstock/schedule/schedule.h>
#include <penstock/transport/mailbox.h>

namespace {

namespace ps = penstock;
using std::chrono::nanoseconds;

constexpr int ranks = 2;
constexpr int micro_batches = 8;
constexpr int rounds = 24;
constexpr int busy_processes = 2;

/// Work, not time: what is interrupted takes longer.
void compute(std::int64_t iterations) {
  volatile double sum = 1;
  for (std::int64_t i = 0; i < iterations; ++i) sum = sum * 0.999999 + 1e-6;
}

std::int64_t iterations_per_ms() {
  constexpr std::int64_t iterations = 2'000'000;
  double best = 1e300;
  for (int i = 0; i < 10; ++i) {
    const std::int64_t begin = ps::now_ns();
    compute(iterations);
    best = std::min(best, static_cast<double>(ps::now_ns() - begin));
  }
  return static_cast<std::int64_t>(static_cast<double>(iterations) / best * 1e6);
}

/// A world of two threads, as open_threads makes it, with nothing in its messages.
struct World {
  struct Watch final : ps::transport::PeerWatch {
    Watch(World& all, int rank) : world(all), own(all.positions[static_cast<std::size_t>(rank)]) {}
    void wait_begins(ps::WorldRank peer) override { own.wait_begins(peer); }
    void wait_ends() override { own.wait_ends(); }
    void ask(ps::WorldRank) override {}
    std::optional<ps::transport::PeerStatus> status(ps::WorldRank rank) const override {
      return world.positions[rank.index()].read();
    }
    bool status_is_delayed() const override { return false; }
    World& world;
    ps::transport::Progress& own;
  };

  explicit World(const ps::transport::WaitPolicy& policy) : positions(ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      mailboxes.emplace_back(ps::WorldRank(rank), policy);
      watches.emplace_back(*this, rank);
    }
  }

  std::vector<ps::transport::Progress> positions;
  std::deque<ps::transport::Mailbox<std::int64_t>> mailboxes;  // of when a message was put there
  std::deque<Watch> watches;
};

/// What a rank does: computes for a given number of iterations, and sends the time at which it ended.
struct Handler {
  World& world;
  const ps::Schedule& schedule;
  int rank = 0;
  std::int64_t forward_iterations = 0;
  std::uint64_t step = 0;
  std::vector<double> hand_overs = {};  // us from a message being there to the waiting rank running again

  void begin(const ps::Instruction& instruction) {
    world.positions[static_cast<std::size_t>(rank)].report(ps::rank::position_of(instruction));
  }

  ps::Tag tag_of(const ps::Instruction& instruction) const {
    const bool is_forward = instruction.op() == ps::Op::send_forward || instruction.op() == ps::Op::recv_forward;
    return {.traffic = is_forward ? ps::Traffic::forward : ps::Traffic::backward,
            .step = step,
            .micro_batch = instruction.micro_batch().value()};
  }

  ps::rank::Arrival receive(const ps::Instruction& instruction) {
    const auto own = static_cast<std::size_t>(rank);
    const std::int64_t begin = ps::now_ns();
    const std::int64_t put =
        world.mailboxes[own].take(ps::WorldRank(1 - rank), tag_of(instruction), "it", world.watches[own]);
    if (put > begin) hand_overs.push_back(static_cast<double>(ps::now_ns() - put) * 1e-3);
    return {.arrived_ns = put};
  }

  void perform(const ps::Instruction& instruction) {
    if (ps::is_send(instruction.op())) {
      world.mailboxes[static_cast<std::size_t>(1 - rank)].put(ps::WorldRank(rank), tag_of(instruction), ps::now_ns());
    } else if (ps::is_compute(instruction.op())) {
      compute(instruction.op() == ps::Op::forward ? forward_iterations : 2 * forward_iterations);
    }
  }
};

struct Strategy {
  const char* name;
  ps::transport::WaitPolicy policy;
  World world;
  std::uint64_t next_step = 0;
  std::vector<double> steps = {};       // ms, each the mean of a round
  std::vector<double> hand_overs = {};  // us

  Strategy(const char* what, const ps::transport::WaitPolicy& how) : name(what), policy(how), world(how) {}
};

/// Runs some steps of `schedule` by this strategy.
void run_round(Strategy& strategy, const ps::Schedule& schedule, const std::vector<ps::rank::Program>& programs,
               std::int64_t forward_iterations, int steps) {
  std::vector<Handler> handler;
  for (int rank = 0; rank < ranks; ++rank)
    handler.push_back(
        {.world = strategy.world, .schedule = schedule, .rank = rank, .forward_iterations = forward_iterations});
  const std::int64_t begin = ps::now_ns();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Handler& own = handler[static_cast<std::size_t>(rank)];
      ps::Recorder recorder;
      for (int i = 0; i < steps; ++i) {
        own.step = strategy.next_step + static_cast<std::uint64_t>(i);
        recorder.begin_step(own.step);
        ps::rank::execute(programs[static_cast<std::size_t>(rank)], own, recorder);
        recorder.end_step();
      }
    });
  for (std::thread& thread : threads) thread.join();
  strategy.steps.push_back(ps::ms_since(begin) / steps);
  for (const Handler& own : handler)
    strategy.hand_overs.insert(strategy.hand_overs.end(), own.hand_overs.begin(), own.hand_overs.end());
  strategy.next_step += static_cast<std::uint64_t>(steps);
}

/// Processes that compute for nobody, while this lives.
class Load {
 public:
  explicit Load(int processes) {
    for (int i = 0; i < processes; ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) compute(1'000'000);
      }
      if (child > 0) children_.push_back(child);
    }
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;
  ~Load() {
    for (const pid_t child : children_) ::kill(child, SIGKILL);
    for (const pid_t child : children_) ::waitpid(child, nullptr, 0);
  }

 private:
  std::vector<pid_t> children_;
};

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

/// The strategies are interleaved, so that what else the machine does meets all of them.
void compare(const char* title, const ps::Schedule& schedule, const std::vector<ps::rank::Program>& programs,
             double forward_ms, std::int64_t per_ms) {
  const auto own_core = nanoseconds(ps::transport::WaitPolicy::spin_on_own_core);
  std::deque<Strategy> strategies;
  strategies.emplace_back("sleep", ps::transport::WaitPolicy{.spin = nanoseconds(0)});
  strategies.emplace_back("spin for 2 ms", ps::transport::WaitPolicy{.spin = own_core, .adapts = false});
  strategies.emplace_back("adaptive", ps::transport::WaitPolicy{.spin = own_core});
  const auto iterations = static_cast<std::int64_t>(forward_ms * static_cast<double>(per_ms));
  const int steps = std::clamp(static_cast<int>(6 / forward_ms), 4, 24);
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < strategies.size(); ++i)
      run_round(strategies[(i + static_cast<std::size_t>(round)) % strategies.size()], schedule, programs, iterations,
                steps);
  const double best = std::min(ps::median(strategies[0].steps), ps::median(strategies[1].steps));
  std::printf("%s, F = %.2f ms, B = %.2f ms\n", title, forward_ms, 2 * forward_ms);
  std::printf("  %-14s %10s %12s %22s %12s\n", "waits by", "step, ms", "of the best", "hand-over, us: median", "mean");
  for (Strategy& one : strategies) {
    const double step = ps::median(one.steps);
    std::printf("  %-14s %10.3f %12.3f %22.1f %12.1f\n", one.name, step, step / best, ps::median(one.hand_overs),
                mean(one.hand_overs));
  }
}

}  // namespace

int main() {
  const ps::Schedule schedule = lower(ps::generate("1f1b", {.ranks = ranks, .micro_batches = micro_batches}));
  const ps::Dependencies dependencies(schedule, links_of(schedule));
  std::vector<ps::rank::Program> programs;
  for (const ps::Order& order : schedule.orders) programs.emplace_back(order, dependencies);
  const std::int64_t per_ms = iterations_per_ms();
  std::printf("1f1b, p = %d, m = %d, a thread per rank; %d rounds each, interleaved\n", ranks, micro_batches, rounds);
  for (const double forward_ms : {0.1, 0.5}) compare("quiet", schedule, programs, forward_ms, per_ms);
  const Load load(busy_processes);
  for (const double forward_ms : {0.1, 0.5, 2.0})
    compare("beside 2 busy processes", schedule, programs, forward_ms, per_ms);
}
