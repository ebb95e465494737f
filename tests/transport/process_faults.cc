// One rank of a job with a fault: process_faults CASE DIRECTORY. Each rank writes its result to DIRECTORY/rank.N, and
// ranks that mpirun may end wait for each other's files first. See process_faults_test.py.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <thread>

#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/transport/mailbox.h"
#include "penstock/transport/transport.h"

namespace {

using namespace penstock;
using namespace std::chrono_literals;

struct Job {
  Job(const std::string& where, std::chrono::milliseconds deadline,
      std::optional<std::chrono::milliseconds> stall_limit)
      : directory(where),
        transport(open({.deadline = deadline, .stall_limit = stall_limit})),
        rank(transport->rank().value()),
        size(transport->size()) {}

  static std::unique_ptr<Transport> open(const TransportOptions& options) {
    return std::getenv("MASTER_ADDR") ? open_gloo(options) : open_mpi(options);
  }

  std::filesystem::path file(int of_rank) const { return directory / ("rank." + std::to_string(of_rank)); }

  void note(const std::string& text) const {
    const auto draft = directory / ("draft." + std::to_string(rank));
    std::ofstream(draft) << text;
    std::filesystem::rename(draft, file(rank));
  }
  static void wait_for(const std::filesystem::path& path) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (!std::filesystem::exists(path) && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(5ms);
  }
  bool has_notes(int first, int last) const {
    bool all = true;
    for (int of_rank = first; of_rank <= last; ++of_rank) all = all && std::filesystem::exists(file(of_rank));
    return all;
  }
  void wait_for_notes(int first, int last) const {
    for (int of_rank = first; of_rank <= last; ++of_rank) wait_for(file(of_rank));
  }

  /// Stops this process. The others read its pid from a file, because a message might not be sent before the stop.
  void stop() const {
    std::ofstream(directory / "draft.pid") << getpid();
    std::filesystem::rename(directory / "draft.pid", directory / "pid");
    raise(SIGSTOP);
  }
  pid_t pid_of_stopped() const {
    wait_for(directory / "pid");
    pid_t pid = 0;
    std::ifstream(directory / "pid") >> pid;
    return pid;
  }

  void send(int to, const Tag& tag, std::int64_t value = 0) const {
    transport->send(WorldRank(to), tag, {{{torch::full({1}, value), false}}});
  }
  std::int64_t receive(int from, const Tag& tag, const std::string& what) const {
    return transport->receive(WorldRank(from), tag, what).payloads.at(0).tensor.item<std::int64_t>();
  }
  std::string failure_of_receive(int from, const Tag& tag, const std::string& what) const {
    try {
      receive(from, tag, what);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no failure";
  }

  std::filesystem::path directory;
  std::unique_ptr<Transport> transport;
  int rank;
  int size;
};

constexpr Tag data{.traffic = Traffic::forward, .micro_batch = 5};
constexpr Tag never_sent{.traffic = Traffic::control};
constexpr Tag never_received{.traffic = Traffic::background};

/// Rank 0 stops; the others form a chain behind it, fail, and wake it; then all continue. They need not fail at once.
void stop_case(Job& job) {
  if (job.rank == 0) {
    job.transport->report_progress({"0F5"});
    std::this_thread::sleep_for(600ms);  // so that the others mostly have asked once, and know the instruction
    job.stop();
    job.send(1, data, 7);
    return;
  }
  const std::string what = std::to_string(job.rank) + "RECV_F5";
  job.transport->report_progress({});
  job.note(job.failure_of_receive(job.rank - 1, data, what));
  // A rank that waits no longer would end the chain of those behind it: until all have failed, it waits again.
  std::optional<std::int64_t> value;
  while (!value) {
    const bool all_have_failed = job.has_notes(1, job.size - 1);
    if (all_have_failed) kill(job.pid_of_stopped(), SIGCONT);
    try {
      value = job.receive(job.rank - 1, data, what);
    } catch (const TransportError&) {
      if (all_have_failed) throw;
    }
  }
  require<TransportError>(*value == 7, "got ", *value);
  if (job.rank + 1 < job.size) job.send(job.rank + 1, data, *value);
}

/// Rank 0 is at one instruction for several deadlines; the last rank waits at the end of a chain.
void slow_case(Job& job) {
  if (job.rank == 0) {
    job.transport->report_progress({"0F5"});
    std::this_thread::sleep_for(4500ms);
    job.send(1, data, 7);
  } else {
    const std::int64_t value = job.receive(job.rank - 1, data, "1RECV_F5");
    if (job.rank + 1 < job.size) job.send(job.rank + 1, data, value);
    job.note(say("got ", value));
  }
}

/// The same with a stall limit.
void stall_case(Job& job) {
  job.transport->report_progress(job.rank == 0 ? Position{"0F5", 12} : Position{"1RECV_F5", 12});
  if (job.rank != 0) job.note(job.failure_of_receive(job.rank - 1, data, "1RECV_F5"));
  job.wait_for_notes(1, job.size - 1);
}

/// Rank 0 sends a message of a late step, and stops before any rank has asked for its status.
void heard_case(Job& job) {
  if (job.rank == 0) {
    job.send(1, {.traffic = Traffic::forward, .step = 5012});
    job.wait_for(job.directory / "draft.got");
    job.stop();
    return;
  }
  job.receive(0, {.traffic = Traffic::forward, .step = 5012}, "1RECV_F0");
  std::ofstream(job.directory / "draft.got") << "it";
  const pid_t stopped = job.pid_of_stopped();
  job.note(job.failure_of_receive(0, data, "1RECV_F5"));
  kill(stopped, SIGCONT);
}

/// Rank 0 leaves while rank 1 waits for it.
void left_case(Job& job) {
  if (job.rank == 0) job.transport.reset();
  if (job.rank == 1) job.note(job.failure_of_receive(0, data, "1RECV_F5"));
}

/// Rank 0 dies after the others have received a message of it, which says where it was.
void kill_case(Job& job) {
  const Tag last{.traffic = Traffic::backward, .step = 5012, .from_stage = 1, .to_stage = 2, .micro_batch = 3};
  const auto received = [&](int rank) { return job.directory / say("draft.got", rank); };
  if (job.rank == 0) {
    for (int to = 1; to < job.size; ++to) job.send(to, last);
    for (int to = 1; to < job.size; ++to) job.wait_for(received(to));
    raise(SIGKILL);
  }
  job.receive(0, last, "1RECV_B3");
  std::ofstream(received(job.rank)) << "it";
  job.note(job.failure_of_receive(0, data, "1RECV_F5"));
}

/// Rank 0 finishes long before the others, which live but make no progress.
void early_end_case(Job& job) {
  if (job.rank != 0) std::this_thread::sleep_for(4500ms);
  job.note("ended");
}

/// Rank 0 stops while the others end, with `last` as their last message: their destructors must return.
void stopped_end_case(Job& job, const std::optional<Message>& last) {
  if (job.rank == 0) {
    job.stop();
    job.note(job.failure_of_receive(1, data, "0RECV_B5"));
    job.wait_for_notes(1, 1);
  } else {
    const pid_t stopped = job.pid_of_stopped();
    if (last) job.transport->send(WorldRank(0), never_received, *last);
    job.transport.reset();
    job.note("ended");
    kill(stopped, SIGCONT);
    job.wait_for_notes(0, 0);
  }
}

void idle_end_case(Job& job) { stopped_end_case(job, std::nullopt); }

/// The message is too long to leave before the receiver takes it.
void sending_end_case(Job& job) { stopped_end_case(job, Message{{{torch::zeros({4 << 20}), false}}}); }

/// One rank sends two messages with one tag: the receiver detects the error and aborts the world.
void twice_case(Job& job) {
  if (job.rank == 0) {
    job.send(1, data);
    job.send(1, data);
  }
  job.note(job.failure_of_receive(1 - job.rank, never_sent, "0RECV_B5"));
  job.wait_for_notes(0, 1);
}

/// What the system does to a rank that writes to a connection which its peer has closed.
void closed_connection_case(Job& job) {
  ::raise(SIGPIPE);
  job.note("goes on");
  job.wait_for_notes(0, job.size - 1);
}

int run(const std::string& name, const std::string& directory) {
  const std::map<std::string, std::pair<std::chrono::milliseconds, void (*)(Job&)>> cases = {
      {"stop", {1s, stop_case}},
      {"slow", {1500ms, slow_case}},
      {"stall", {20s, stall_case}},
      {"heard", {1s, heard_case}},
      {"left", {20s, left_case}},
      {"kill", {60s, kill_case}},
      {"early_end", {1500ms, early_end_case}},
      {"stopped_end", {1s, idle_end_case}},
      {"stopped_end_with_a_long_message", {1s, sending_end_case}},
      {"twice", {20s, twice_case}},
      {"closed_connection", {20s, closed_connection_case}},
  };
  const auto& [deadline, action] = cases.at(name);
  Job job(directory, deadline, name == "stall" ? std::optional(1000ms) : std::nullopt);
  try {
    action(job);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "rank " << job.rank << ": " << error.what() << "\n";
    job.transport->abort(error.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: process_faults CASE DIRECTORY\n";
    return 2;
  }
  return run(argv[1], argv[2]);
}
