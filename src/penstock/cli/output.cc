#include "penstock/cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>

#include <unistd.h>

#include "penstock/base/error.h"

namespace penstock {

void write_output(const std::string& path, std::string_view text) {
  if (path == "-") {
    std::cout << text << std::flush;
    return;
  }
  const std::string beside = say(path, ".tmp-", getpid());
  std::ofstream file(beside, std::ios::binary);
  file << text;
  file.close();
  if (file && std::rename(beside.c_str(), path.c_str()) == 0) return;
  const int cause = errno;
  std::remove(beside.c_str());
  throw ConfigError(say("cannot write '", path, "': ", std::strerror(cause)));
}

}  // namespace penstock
