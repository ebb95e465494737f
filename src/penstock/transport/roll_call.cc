#include "penstock/transport/roll_call.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "penstock/base/error.h"
#include "penstock/transport/peer_processes.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// Whether `environment`, as /proc shows it, has the line `variable`.
bool has_variable(const std::string& environment, const std::string& variable) {
  return ('\0' + environment + '\0').find('\0' + variable + '\0') != std::string::npos;
}

/// A stopped process of this host that was started as this rank of the job, even if it has not reached this library.
std::optional<long> stopped_process_of(const std::string& job, int rank) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const long pid = std::atol(entry.path().filename().c_str());
    if (pid <= 0 || !is_stopped(pid)) continue;
    std::ifstream file(entry.path() / "environ", std::ios::binary);
    std::ostringstream environment;
    environment << file.rdbuf();
    if (has_variable(environment.str(), "PMIX_NAMESPACE=" + job) &&
        has_variable(environment.str(), "OMPI_COMM_WORLD_RANK=" + std::to_string(rank)))
      return pid;
  }
  return std::nullopt;
}

int number(const char* text, int otherwise) { return text ? std::atoi(text) : otherwise; }

}  // namespace

RollCall::RollCall() : RollCall([](const char* name) { return std::getenv(name); }) {}

RollCall::RollCall(const Environment& environment) {
  const char* folder = environment("PMIX_SERVER_TMPDIR");
  const char* job = environment("PMIX_NAMESPACE");
  if (!folder || !job) return;
  folder_ = folder;
  job_ = job;
  rank_ = number(environment("OMPI_COMM_WORLD_RANK"), 0);
  size_ = number(environment("OMPI_COMM_WORLD_SIZE"), 1);
  has_other_hosts_ = number(environment("OMPI_COMM_WORLD_LOCAL_SIZE"), size_) < size_;
}

void RollCall::leave() noexcept {
  std::error_code ignored;
  if (has_come_) fs::remove(note_of(rank_), ignored);
}

fs::path RollCall::note_of(int rank) const { return folder_ / say("penstock.", job_, ".", rank); }

void RollCall::come(int round) noexcept {
  if (folder_.empty()) return;
  try {
    const fs::path draft = note_of(rank_).string() + ".draft";
    std::ofstream(draft) << getpid() << ' ' << round << '\n';
    fs::rename(draft, note_of(rank_));
    has_come_ = true;
  } catch (const std::exception&) {
  }
}

// Empty when the rank has come and lives.
std::string RollCall::trouble_with(int rank, int round) const {
  std::ifstream file(note_of(rank));
  long pid = 0;
  int its_round = 0;
  const bool has_note = static_cast<bool>(file >> pid >> its_round);
  if (has_note) {
    if (!state_of_process(pid)) return say("rank ", rank, " (process ", pid, ") has ended");
    if (is_stopped(pid)) return say("rank ", rank, " (process ", pid, ") is stopped");
    if (its_round >= round) return "";
    return say("rank ", rank, " (process ", pid, ") has not come to this world");
  }
  if (const auto stopped = stopped_process_of(job_, rank))
    return say("rank ", rank, " (process ", *stopped, ") is stopped, and has not come");
  return has_other_hosts_ ? say("rank ", rank, " has not come, or is on another host")
                          : say("rank ", rank, " has not come");
}

std::string RollCall::missing(int round) const {
  if (folder_.empty()) return "with this launcher it is not known which ranks have come";
  std::string text;
  for (int rank = 0; rank < size_; ++rank) {
    const std::string trouble = rank == rank_ ? std::string() : trouble_with(rank, round);
    if (!trouble.empty()) text += (text.empty() ? "" : "; ") + trouble;
  }
  return text.empty() ? "all ranks that can be seen from here have come, and one of them does not answer" : text;
}

}  // namespace penstock
