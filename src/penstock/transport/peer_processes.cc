#include "penstock/transport/peer_processes.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>

namespace penstock {
namespace {

/// The fields of a process from its state on, as /proc has them. Empty when there is no such process.
std::string fields_of_process(std::int64_t number) {
  std::ifstream file("/proc/" + std::to_string(number) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return "";
  const std::size_t name_end = text.rfind(')');  // a program's name may contain any character
  return name_end != std::string::npos && name_end + 2 < text.size() ? text.substr(name_end + 2) : "";
}

}  // namespace

ProcessName own_process_name() {
  struct stat of_namespace = {};
  if (::stat("/proc/self/ns/pid", &of_namespace) != 0) return {};
  return {static_cast<std::uint64_t>(of_namespace.st_ino), ::getpid()};
}

std::optional<char> state_of_process(std::int64_t number) {
  const std::string fields = fields_of_process(number);
  return fields.empty() ? std::nullopt : std::optional(fields[0]);
}

std::uint64_t start_of_process(std::int64_t number) {
  constexpr int before = 19;  // fields from the state to the start, proc(5)
  std::istringstream fields(fields_of_process(number));
  std::string skipped;
  for (int i = 0; i < before; ++i) fields >> skipped;
  std::uint64_t ticks = 0;
  return fields >> ticks ? ticks : 0;
}

bool is_stopped(std::int64_t number) {
  const auto state = state_of_process(number);
  return state == 'T' || state == 't';
}

PeerProcesses::~PeerProcesses() {
  for (const Watched& watched : watched_) ::close(watched.descriptor);
}

void PeerProcesses::watch(WorldRank rank, const ProcessName& process) {
  if (process.numbered_by == 0 || process.numbered_by != own_process_name().numbered_by) return;
#ifdef SYS_pidfd_open
  const auto descriptor = static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(process.number), 0));
  if (descriptor >= 0)
    watched_.push_back({{rank, process.number}, descriptor});
  else if (errno == ESRCH)
    ended_before_ = {rank, process.number};
#endif
}

std::optional<PeerProcesses::Ended> PeerProcesses::ended() const {
  if (ended_before_) return ended_before_;
  std::vector<pollfd> descriptors;
  for (const Watched& watched : watched_) descriptors.push_back({watched.descriptor, POLLIN, 0});
  if (::poll(descriptors.data(), descriptors.size(), 0) <= 0) return std::nullopt;
  for (std::size_t i = 0; i < watched_.size(); ++i)
    if (descriptors[i].revents != 0) return watched_[i].which;
  return std::nullopt;
}

}  // namespace penstock
