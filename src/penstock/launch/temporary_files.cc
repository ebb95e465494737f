#include "penstock/launch/temporary_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "penstock/base/error.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view shared_memory_folder = "/dev/shm";

std::string own_host() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

std::string text_of(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value ? value : "";
}

/// Whether it is ours, and a directory or a regular file as `type` says; a symbolic link is neither.
bool is_own(const fs::path& path, mode_t type) {
  struct stat status = {};
  return ::lstat(path.c_str(), &status) == 0 && (status.st_mode & S_IFMT) == type && status.st_uid == ::geteuid();
}

/// The beginning of a journal's line about files of this host.
std::string line_begin(std::string_view kind) { return say("host ", own_host(), ": ", kind, " "); }

constexpr std::string_view session_kind = "session";
constexpr std::string_view shared_memory_kind = "shared memory";

void remove_session(const fs::path& session, pid_t mpirun, std::vector<std::string>& removed) {
  const bool is_of_mpirun = session.is_absolute() && session.filename() == say("pid.", mpirun) &&
                            session.parent_path().filename().string().starts_with("ompi.");
  if (!is_of_mpirun || !is_own(session, S_IFDIR)) return;
  std::error_code problem;
  fs::remove_all(session, problem);
  if (!problem) removed.push_back(session.string());
}

void remove_shared_memory(const fs::path& begin, std::vector<std::string>& removed) {
  const std::string name = begin.filename().string();
  if (begin.parent_path() != shared_memory_folder || !name.starts_with("vader_segment.") || !name.ends_with('.'))
    return;
  std::error_code problem;
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(shared_memory_folder, problem), end; !problem && entry != end;
       entry.increment(problem))
    if (entry->path().filename().string().starts_with(name) && is_own(entry->path(), S_IFREG))
      found.push_back(entry->path());
  for (const fs::path& path : found)
    if (fs::remove(path, problem)) removed.push_back(path.string());
}

}  // namespace

TemporaryFiles temporary_files(const Environment& environment) {
  TemporaryFiles files;
  files.session = text_of(environment, "OMPI_MCA_orte_jobfam_session_dir");
  const std::string job = text_of(environment, "OMPI_MCA_ess_base_jobid");
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(job.data(), job.data() + job.size(), number);
  if (job.empty() || error != std::errc() || end != job.data() + job.size()) return files;
  char digits[16] = {};
  std::to_chars(digits, digits + sizeof(digits), number, 16);
  std::string host = text_of(environment, "PMIX_HOSTNAME");
  if (host.empty()) host = own_host();
  files.shared_memory = say(shared_memory_folder, "/vader_segment.", host, ".", ::geteuid(), ".", digits, ".");
  return files;
}

void note_temporary_files(const JobLogs& logs) {
  const Environment own = [](const char* name) { return std::getenv(name); };
  if (text_of(own, "OMPI_COMM_WORLD_LOCAL_RANK") != "0") return;
  const TemporaryFiles files = temporary_files(own);
  if (!files.session.empty()) logs.note(line_begin(session_kind) + files.session);
  if (!files.shared_memory.empty()) logs.note(line_begin(shared_memory_kind) + files.shared_memory);
}

std::vector<std::string> remove_temporary_files(const JobLogs& logs, pid_t mpirun) {
  std::vector<std::string> removed;
  std::ifstream file(logs.journal());
  const std::string session = line_begin(session_kind), shared_memory = line_begin(shared_memory_kind);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(session)) remove_session(line.substr(session.size()), mpirun, removed);
    if (line.starts_with(shared_memory)) remove_shared_memory(line.substr(shared_memory.size()), removed);
  }
  return removed;
}

}  // namespace penstock
