#include "penstock/launch/follow_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "penstock/base/error.h"

namespace penstock {

LogFollower::LogFollower(const std::filesystem::path& path, int stream, std::string mark)
    : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), stream_(stream), mark_(std::move(mark)) {
  require<Failure>(file_ >= 0, path.string(), ": cannot be opened: ", std::strerror(errno));
}

LogFollower::~LogFollower() { ::close(file_); }

void LogFollower::copy_new(bool last) {
  char piece[65536];
  for (ssize_t size = 0; (size = ::read(file_, piece, sizeof(piece))) > 0;) {
    const std::string_view text(piece, static_cast<std::size_t>(size));
    if (mark_.empty()) {
      put(text);
      continue;
    }
    unfinished_ += text;
    put_marked_lines(false);
  }
  if (last && !unfinished_.empty()) put_marked_lines(true);
}

void LogFollower::put_marked_lines(bool last) {
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = unfinished_.find('\n', begin)) != unfinished_.npos; begin = end + 1)
    put(mark_ + unfinished_.substr(begin, end + 1 - begin));
  unfinished_.erase(0, begin);
  if (last && !unfinished_.empty()) put(mark_ + std::exchange(unfinished_, {}) + "\n");
}

void LogFollower::put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(stream_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace penstock
