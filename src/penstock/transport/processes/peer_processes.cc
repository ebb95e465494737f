#include "penstock/transport/processes/peer_processes.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "penstock/base/error.h"
#include "penstock/base/hash.h"

namespace penstock::processes {
namespace {

/// Never 0, which stands for an unknown host.
std::uint64_t hash_of(const std::string& text) {
  const std::uint64_t hash = text_hash(text);
  return hash == 0 ? 1 : hash;
}

/// The entry of a list like "3,GPU-8932f937" that process-local index `index` means; the index itself without a list.
std::string visible_entry(const char* list, int index) {
  std::string_view rest = list ? list : "";
  if (rest.empty()) return std::to_string(index);
  for (int i = 0; i < index && !rest.empty(); ++i) rest.remove_prefix(std::min(rest.find(',') + 1, rest.size()));
  return std::string(rest.substr(0, rest.find(',')));
}

/// 'T' for a stopped process, 'R', 'S', ... for others; 'X' if there is no such process.
char state_of_process(std::int64_t number) {
  std::ifstream file(say("/proc/", number, "/stat"));
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');  // a program's name may contain any character
  return name_end != std::string::npos && name_end + 2 < text.size() ? text[name_end + 2] : 'X';
}

}  // namespace

std::uint64_t host_id(const Environment& environment) {
  if (const char* name = environment(host_variable); name && *name) return hash_of(std::string("named ") + name);
  std::string boot;
  if (std::ifstream("/proc/sys/kernel/random/boot_id") >> boot) return hash_of("boot " + boot);
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  return hash_of(std::string("host ") + name);
}

ProcessName own_process_name() {
  struct stat of_namespace = {};
  if (::stat("/proc/self/ns/pid", &of_namespace) != 0) return {};
  return {static_cast<std::uint64_t>(of_namespace.st_ino), ::getpid()};
}

ProcessPlace own_place() { return {host_id(), own_process_name()}; }

std::string trouble_with(const ProcessPlace& place) {
  const auto& [numbered_by, number] = place.process;
  // Initial PID namespaces have the same number on every host.
  if (place.host != host_id() || numbered_by == 0 || numbered_by != own_process_name().numbered_by) return "";
  const char state = state_of_process(number);
  if (state == 'T' || state == 't') return say(" (process ", number, ") is stopped");
  return state == 'X' || state == 'Z' ? say(" (process ", number, ") has ended") : "";
}

std::uint64_t physical_device(const DeviceName& device, const Environment& environment) {
  // Containers, and control groups that hide devices, number what they see, each for itself.
  std::error_code ignored;
  std::string seen_with = std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) seen_with += " " + line;
  return text_hash(say(host_id(environment), " ", seen_with, " ", device.type, " ",
                       visible_entry(environment("CUDA_VISIBLE_DEVICES"), device.index)));
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

}  // namespace penstock::processes
