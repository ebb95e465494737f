#include "penstock/launch/job_logs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>

#include "penstock/base/error.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// ".2" for the files of attempt 2 in the layout `worker`; empty for attempt 1.
std::string attempt_mark(int attempt) { return attempt == 1 ? "" : say(".", attempt); }

/// The number from 1 to 999999999 that `text` consists of; 0 if it is none, or begins with 0.
int number_in(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size() && !text.starts_with('0');
  return is_number && number > 0 && number < 1'000'000'000 ? number : 0;
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
bool take(const JobLogs& logs) {
  if (logs.layout() == LogLayout::rank) return fs::create_directory(logs.journal().parent_path());
  const int file = ::open(logs.journal().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0 && errno == EEXIST) return false;
  require<ConfigError>(file >= 0, logs.journal().string(), ": cannot be written: ", std::strerror(errno));
  ::close(file);
  return true;
}

// The forms that note_signal() and note() write.

std::optional<int> read_signalled_rank(const std::string& line) {
  int rank = 0, signal = 0;
  if (std::sscanf(line.c_str(), "rank %9d: told to end by signal %9d", &rank, &signal) != 2) return std::nullopt;
  return rank;
}

std::optional<Ending> read_ending(const std::string& line) {
  Ending ending;
  if (std::sscanf(line.c_str(), "rank %9d: exit code %9d", &ending.rank, &ending.exit_code) == 2) return ending;
  ending = {};
  if (std::sscanf(line.c_str(), "rank %9d: signal %9d", &ending.rank, &ending.signal) == 2) return ending;
  return std::nullopt;
}

}  // namespace

std::string Ending::text() const {
  return signal != 0 ? say("signal ", signal, " (", ::strsignal(signal), ")") : say("exit code ", exit_code);
}

JobLogs::JobLogs(fs::path folder, LogLayout layout, int attempt)
    : folder_(std::move(folder)), layout_(layout), attempt_(attempt) {}

JobLogs JobLogs::claim(const fs::path& folder, LogLayout layout) {
  try {
    fs::create_directories(folder);
    for (int attempt = last_attempt(folder, layout) + 1;; ++attempt)
      if (JobLogs logs(folder, layout, attempt); take(logs)) return logs;
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
  // A single write in append mode, so that lines of several processes do not mix.
  const std::string text = line + "\n";
  const int file = ::open(journal().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  const bool written = file >= 0 && ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int reason = errno;
  if (file >= 0) ::close(file);
  require<Failure>(written, journal().string(), ": cannot be written: ", std::strerror(reason));
}

void JobLogs::note_signal(int rank, int signal) const {
  note(say("rank ", rank, ": told to end by signal ", signal, " (", ::strsignal(signal), ")"));
}

void JobLogs::note(const Ending& ending) const { note(say("rank ", ending.rank, ": ", ending.text())); }

std::vector<Ending> JobLogs::endings() const {
  std::vector<Ending> found;
  std::ifstream file(journal());
  std::set<int> signalled;
  for (std::string line; std::getline(file, line);) {
    if (const auto rank = read_signalled_rank(line)) signalled.insert(*rank);
    if (auto ending = read_ending(line)) {
      ending->was_signalled = signalled.contains(ending->rank);
      found.push_back(*ending);
    }
  }
  return found;
}

std::vector<int> JobLogs::vanished(int count) const {
  std::set<int> known;
  for (const Ending& ending : endings()) known.insert(ending.rank);
  std::ifstream file(journal());
  for (std::string line; std::getline(file, line);)
    if (const auto rank = read_signalled_rank(line)) known.insert(*rank);
  std::vector<int> missing;
  std::error_code ignored;
  for (int rank = 0; rank < count; ++rank)
    if (!known.contains(rank) && fs::exists(of_rank(rank).out, ignored)) missing.push_back(rank);
  return missing;
}

bool is_polite_stop(int exit_code) {
  constexpr int time_limit = 75;
  return exit_code == time_limit || exit_code == 128 + SIGINT || exit_code == 128 + SIGUSR1 ||
         exit_code == 128 + SIGTERM;
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

bool is_own_failure(const Ending& ending) {
  const bool is_by_signal = ending.signal != 0;
  return ending.failed() && !(ending.was_signalled && is_by_signal);
}

std::optional<Ending> first_failure(const std::vector<Ending>& endings) {
  auto first = std::find_if(endings.begin(), endings.end(),
                            [](const Ending& one) { return one.failed() && !one.was_signalled; });
  if (first == endings.end()) first = std::find_if(endings.begin(), endings.end(), is_own_failure);
  return first == endings.end() ? std::nullopt : std::optional(*first);
}

int exit_code_of(const std::vector<Ending>& endings) {
  const auto worst_of = [&](auto&& counts) {
    int worst = 0;
    for (const Ending& ending : endings) {
      const bool by_launcher = worst != 0 && (ending.signal == SIGTERM || ending.signal == SIGKILL);
      if (counts(ending) && !by_launcher) worst = std::max(worst, ending.status());
    }
    return worst;
  };
  const int unsignalled = worst_of([](const Ending& one) { return one.failed() && !one.was_signalled; });
  return unsignalled != 0 ? unsignalled : worst_of(is_own_failure);
}

}  // namespace penstock
