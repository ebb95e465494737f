#include "penstock/cli/body_launcher.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace penstock {

bool is_body_verb(std::string_view word) {
  return std::any_of(std::begin(body_verbs), std::end(body_verbs),
                     [&](const BodyVerb& one) { return one.name == word; });
}

void become_body(const CommandLine& line) {
  namespace fs = std::filesystem;
  const fs::path own_folder = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path body = own_folder.parent_path() / "libexec" / "penstock" / "penstock-body";
  require<ConfigError>(fs::exists(body), "this build has no LibTorch (PENSTOCK_TORCH=OFF): the verb '", line.words[1],
                       "' is not in it (there is no ", body.string(), ")");
  // The words stay with their addresses: the list of processes goes on showing what the user typed.
  ::execv(body.c_str(), line.words);
  throw Failure(say(body.string(), ": cannot be started: ", std::strerror(errno)));
}

}  // namespace penstock
