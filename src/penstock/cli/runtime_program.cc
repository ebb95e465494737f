#include "penstock/cli/runtime_program.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace penstock {

bool is_runtime_verb(std::string_view argument) {
  return std::any_of(std::begin(runtime_verbs), std::end(runtime_verbs),
                     [&](const RuntimeVerb& one) { return one.name == argument; });
}

void become_runtime_program(const CommandLine& line) {
  namespace fs = std::filesystem;
  const fs::path own_folder = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path program = own_folder.parent_path() / "libexec" / "penstock" / "penstock-runtime";
  require<ConfigError>(fs::exists(program), "this build has no LibTorch (PENSTOCK_TORCH=OFF): the verb '",
                       line.arguments[1], "' is not in it (there is no ", program.string(), ")");
  // argv is passed on unchanged, so that the list of processes shows what the user typed.
  ::execv(program.c_str(), line.arguments);
  throw Failure(say(program.string(), ": cannot be started: ", std::strerror(errno)));
}

}  // namespace penstock
