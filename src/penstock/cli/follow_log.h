// Copies what a growing file says.
#pragma once

#include <filesystem>
#include <string>

namespace penstock {

/// Reads a file that others write to, and copies what is new to a stream of this process. Not thread-safe.
class LogFollower {
 public:
  /// `mark` goes before every line; where there is one, only whole lines are copied, each in one piece, so that several
  /// logs can be seen on one screen. The file has to be there. Throws Failure.
  LogFollower(std::filesystem::path path, int stream, std::string mark);
  LogFollower(LogFollower&& other) noexcept;
  LogFollower& operator=(LogFollower&& other) noexcept;
  ~LogFollower();

  const std::filesystem::path& path() const { return path_; }

  /// Copies what has come since the last call. `last`: what is left of an unfinished line too. A stream that cannot be
  /// written is given up silently: the file has it all.
  void copy_new(bool last);

 private:
  void put(std::string_view text);
  void put_marked_lines(bool last);

  std::filesystem::path path_;
  int file_ = -1;
  int stream_;
  std::string mark_;
  std::string unfinished_;
};

}  // namespace penstock
