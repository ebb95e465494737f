#include "penstock/transport/host_id.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "penstock/base/text_hash.h"

namespace penstock {
namespace {

/// Never 0, which stands for an unknown host.
std::uint64_t hash_of(const std::string& text) {
  const std::uint64_t hash = text_hash(text);
  return hash == 0 ? 1 : hash;
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

std::uint64_t host_id() {
  return host_id([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace penstock
