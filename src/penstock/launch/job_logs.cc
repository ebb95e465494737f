#include "penstock/launch/job_logs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/process.h"
#include "penstock/base/text.h"

namespace penstock::launch {
namespace {

namespace fs = std::filesystem;

/// ".2" for the files of attempt 2 in the layout `worker`; empty for attempt 1.
std::string attempt_mark(int attempt) { return attempt == 1 ? "" : say(".", attempt); }

/// The number from 1 to 999999999 that `text` consists of; 0 if it is not one, or begins with 0.
int number_in(std::string_view text) {
  const int number = text.starts_with('0') ? 0 : number_of<int>(text).value_or(0);
  return number > 0 && number < 1'000'000'000 ? number : 0;
}

/// The attempt to which a file in the log folder belongs; 0: none.
int attempt_of(std::string_view name, LogLayout layout) {
  if (layout == LogLayout::rank) return number_in(name);
  const bool is_log = (name.starts_with("launch.") || name.starts_with("worker_")) && name.ends_with(".log");
  if (!is_log) return 0;
  name.remove_suffix(std::string_view(".log").size());
  const std::size_t dot = name.find('.');
  return dot == name.npos ? 1 : number_in(name.substr(dot + 1));
}

int last_attempt(const fs::path& folder, LogLayout layout) {
  int last = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    last = std::max(last, attempt_of(entry.path().filename().string(), layout));
  return last;
}

/// Creates the file or folder that reserves the attempt; false if another job was faster.
bool take(const fs::path& journal, LogLayout layout) {
  if (layout == LogLayout::rank) return fs::create_directory(journal.parent_path());
  std::FILE* const file = std::fopen(journal.c_str(), "wx");
  require<ConfigError>(file || errno == EEXIST, journal.string(), ": cannot be written: ", std::strerror(errno));
  return file && std::fclose(file) == 0;
}

/// A growing log, and where it is shown.
struct ShownLog {
  std::ifstream file;
  int stream;                   // the file descriptor to write to
  std::string mark;             // precedes every line, if not empty: then only whole lines are written
  std::string unfinished = {};  // what was read of a line
};

void put(int stream, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(stream, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// Copies the contents that were added since the last call; with `last`, also an unfinished line.
void copy_new(ShownLog& log, bool last) {
  log.file.clear();  // of its former end
  for (std::string piece; std::getline(log.file, piece);) {
    const bool is_end = log.file.eof();  // the line may go on
    log.unfinished += piece + (is_end ? "" : "\n");
    if (!is_end || log.mark.empty()) put(log.stream, log.mark + std::exchange(log.unfinished, {}));
  }
  if (last && !log.unfinished.empty()) put(log.stream, log.mark + std::exchange(log.unfinished, {}) + "\n");
}

}  // namespace

JobLogs::JobLogs(fs::path folder, LogLayout layout, int attempt)
    : folder_(std::move(folder)), layout_(layout), attempt_(attempt) {}

JobLogs JobLogs::claim(const fs::path& folder, LogLayout layout) {
  try {
    fs::create_directories(folder);
    for (int attempt = last_attempt(folder, layout) + 1;; ++attempt)
      if (JobLogs logs(folder, layout, attempt); take(logs.journal(), layout)) return logs;
  } catch (const fs::filesystem_error& error) {
    throw ConfigError(say("logs cannot be written to ", folder.string(), ": ", error.code().message(),
                          "; name another folder with --log-dir"));
  }
}

RankLogs JobLogs::of_rank(int rank) const {
  if (layout_ == LogLayout::worker) {
    const fs::path both = folder_ / say("worker_", rank, attempt_mark(attempt_), ".log");
    return {both, both};
  }
  const fs::path own = folder_ / std::to_string(attempt_) / say("rank.", rank);
  return {own / "stdout", own / "stderr"};
}

fs::path JobLogs::journal() const {
  if (layout_ == LogLayout::worker) return folder_ / say("launch", attempt_mark(attempt_), ".log");
  return folder_ / std::to_string(attempt_) / "launch.log";
}

std::string JobLogs::shown() const {
  if (layout_ == LogLayout::rank) return (folder_ / std::to_string(attempt_)).string();
  return (folder_ / say("worker_N", attempt_mark(attempt_), ".log")).string();
}

void JobLogs::note(const std::string& line) const {
  std::ofstream file(journal(), std::ios::app);
  file << line << std::endl;
  require<Failure>(file.good(), journal().string(), ": cannot be written: ", std::strerror(errno));
}

int create_log(const fs::path& path) {
  std::error_code problem;
  fs::create_directories(path.parent_path(), problem);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  require<Failure>(file >= 0, path.string(), ": cannot be written: ", std::strerror(errno));
  return file;
}

std::jthread show_logs(const JobLogs& logs, int ranks, ShownRanks shown) {
  std::vector<ShownLog> all;
  for (int rank = 0; rank < (shown == ShownRanks::all ? ranks : shown == ShownRanks::first ? 1 : 0); ++rank) {
    const RankLogs files = logs.of_rank(rank);
    const std::string mark = shown == ShownRanks::all ? say("[rank ", rank, "] ") : std::string();
    all.push_back({std::ifstream(files.out), STDOUT_FILENO, mark});
    if (files.err != files.out) all.push_back({std::ifstream(files.err), STDERR_FILENO, mark});
  }
  return std::jthread([all = std::move(all)](const std::stop_token& stop) mutable {
    constexpr std::chrono::milliseconds interval{50};  // inotify is not supported by every file system
    name_this_thread("screen");
    sigset_t signals;
    ::sigfillset(&signals);  // SIGPIPE too: a closed screen must not end the job
    ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    for (bool last = false; !last;) {
      if (!stop.stop_requested()) std::this_thread::sleep_for(interval);
      last = stop.stop_requested();
      for (ShownLog& log : all) copy_new(log, last);
    }
  });
}

std::vector<std::string> last_lines(const fs::path& path, std::size_t count) {
  constexpr std::streamoff most_bytes = 65536;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (!file || size <= 0) return {};
  file.seekg(std::max<std::streamoff>(0, size - most_bytes));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  return lines;
}

}  // namespace penstock::launch
