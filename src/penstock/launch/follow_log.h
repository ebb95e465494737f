// Copies a growing log file to the screen.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>

namespace penstock {

/// The time between two polls of a growing log. (inotify would save them, but not every file system supports it.)
constexpr std::chrono::milliseconds polling_interval{50};

/// Reads a file to which another process appends, and copies new contents to a file descriptor. Not thread-safe.
class LogFollower {
 public:
  /// `stream` is the file descriptor to write to. If `mark` is not empty, it precedes every line, and only whole lines
  /// are written, each by one call, so that several logs can share a screen. Throws Failure if the file does not exist.
  LogFollower(const std::filesystem::path& path, int stream, std::string mark);
  LogFollower(const LogFollower&) = delete;
  LogFollower& operator=(const LogFollower&) = delete;
  ~LogFollower();

  /// Copies the contents that were added since the last call; with `last`, also an unfinished line. If the stream
  /// cannot be written, further output is dropped silently: the file has everything.
  void copy_new(bool last);

 private:
  void put(std::string_view text);
  void put_marked_lines(bool last);

  int file_;
  int stream_;
  std::string mark_;
  std::string unfinished_;
};

}  // namespace penstock
