#include "penstock/launch/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <type_traits>

#include "penstock/base/error.h"

namespace penstock {
namespace {

// Known services, which may be started later, have smaller numbers.
constexpr int first_candidate = 10'000, last_candidate = 65'535;
constexpr int most_tries = 1'000;

template <class Address>
auto& port_of(Address& address) {
  if constexpr (std::is_same_v<Address, sockaddr_in6>)
    return address.sin6_port;
  else
    return address.sin_port;
}

/// Binds a new socket on all addresses of a protocol, to the port of `address` or, where that is 0, to one that the
/// kernel chooses, and returns the port: 0 if it is taken, the given one if the machine does not have the protocol.
template <class Address>
int bound_port(Address address) {
  const int given = ntohs(port_of(address));
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const int socket = ::socket(generic->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return given;
  socklen_t size = sizeof(address);
  const bool is_bound = ::bind(socket, generic, size) == 0;
  const bool is_absent = !is_bound && errno == EADDRNOTAVAIL;
  if (is_bound) ::getsockname(socket, generic, &size);
  ::close(socket);
  return is_bound ? ntohs(port_of(address)) : is_absent ? given : 0;
}

/// The same on all addresses of both protocols, as the store of c10d listens.
int bound_port(int port) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(static_cast<std::uint16_t>(port));
  const int bound = bound_port(v4);
  if (bound == 0) return 0;
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(static_cast<std::uint16_t>(bound));
  return bound_port(v6);
}

}  // namespace

PortRange ephemeral_ports() {
  PortRange range{32'768, 60'999};  // Linux's own
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  if (PortRange found; file >> found.first >> found.last) range = found;
  return range;
}

int free_port(const PortRange& avoided) {
  std::random_device random;
  std::uniform_int_distribution<int> any(first_candidate, last_candidate);
  for (int i = 0; i < most_tries; ++i) {
    const int port = any(random);
    const bool is_avoided = port >= avoided.first && port <= avoided.last;
    if (!is_avoided && bound_port(port) == port) return port;
  }
  const int port = bound_port(0);
  require<Failure>(port != 0, "this machine has no free port at which the ranks could meet: ", std::strerror(errno));
  return port;
}

}  // namespace penstock
