#include "penstock/transport/store_address.h"

#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <sstream>
#include <system_error>

#include "penstock/base/error.h"

namespace penstock {
namespace {

constexpr const char* interface_variable = "GLOO_SOCKET_IFNAME";

struct Resolved {
  int error = 0;  // of getaddrinfo()
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> first{nullptr, &::freeaddrinfo};
};

Resolved resolve(const Rendezvous& store, int socket_type) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = socket_type;
  Resolved resolved;
  resolved.error = ::getaddrinfo(store.address.c_str(), std::to_string(store.port).c_str(), &hints, &found);
  if (resolved.error == 0) resolved.first.reset(found);
  return resolved;
}

Listener listener_at(const addrinfo& address) {
  constexpr int longest_wait_ms = 300;
  const int socket =
      ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol);
  if (socket < 0) return Listener::none;
  Listener found = Listener::none;
  pollfd changed{socket, POLLOUT, 0};
  int error_number = 0;
  socklen_t length = sizeof(error_number);
  if ((::connect(socket, address.ai_addr, address.ai_addrlen) == 0 || errno == EINPROGRESS) &&
      ::poll(&changed, 1, longest_wait_ms) == 1 &&
      ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error_number, &length) == 0 && error_number == 0) {
    changed = {socket, POLLIN, 0};
    // A proxy that forwards to nobody closes the connection: only what is said tells of another program.
    char said = 0;
    const bool speaks = ::poll(&changed, 1, longest_wait_ms) == 1 && ::recv(socket, &said, 1, MSG_PEEK) == 1;
    found = speaks ? Listener::other : Listener::silent;
  }
  ::close(socket);
  return found;
}

}  // namespace

void require_network_interfaces(const Environment& environment) {
  const char* named = environment(interface_variable);
  if (!named) return;
  std::istringstream names(named);
  for (std::string name; std::getline(names, name, ',');)
    require<ConfigError>(name.empty() || ::if_nametoindex(name.c_str()) != 0, interface_variable, "=", name,
                         ": this host has no such network interface; take one that `ip link` shows, or unset it");
}

Unresolved why_unresolved(const Rendezvous& store, const Environment& environment) {
  const int error = resolve(store, SOCK_STREAM).error;
  if (error == 0) return {};
  // Others, such as EAI_AGAIN, may pass.
  const bool is_answer = error == EAI_NONAME || error == EAI_FAIL || error == EAI_NODATA || error == EAI_ADDRFAMILY;
  return {.why = ::gai_strerror(error), .is_final = is_answer && !environment("KUBERNETES_SERVICE_HOST")};
}

std::string address_towards(const Rendezvous& store, const Environment& environment) {
  if (environment(interface_variable)) return "";
  const Resolved resolved = resolve(store, SOCK_DGRAM);  // connecting sends nothing
  std::string address;
  for (const addrinfo* each = resolved.first.get(); each && address.empty(); each = each->ai_next) {
    const int socket = ::socket(each->ai_family, each->ai_socktype, each->ai_protocol);
    if (socket < 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof(own);
    char text[NI_MAXHOST] = "";
    if (::connect(socket, each->ai_addr, each->ai_addrlen) == 0 &&
        ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0)
      address = text;
    ::close(socket);
  }
  return address;
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

int loopback_socket(const Rendezvous& store) {
  const Resolved resolved = resolve(store, SOCK_STREAM);
  require<TransportError>(resolved.error == 0, ::gai_strerror(resolved.error));
  int bound = -1, error_number = EADDRNOTAVAIL;
  for (const addrinfo* each = resolved.first.get(); each && bound < 0; each = each->ai_next) {
    const int socket = ::socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, each->ai_protocol);
    if (socket < 0) continue;
    const int reuses = 1;  // a port on which connections of a former job still end
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &reuses, sizeof(reuses));
    if (::bind(socket, each->ai_addr, each->ai_addrlen) == 0) {
      bound = socket;
      continue;
    }
    error_number = errno;
    ::close(socket);
  }
  require<TransportError>(bound >= 0, "port ", store.port, " of ", store.address, ": ",
                          std::generic_category().message(error_number));
  return bound;
}

Listener listener_at(const Rendezvous& store) {
  const Resolved resolved = resolve(store, SOCK_STREAM);
  for (const addrinfo* each = resolved.first.get(); each; each = each->ai_next)
    if (const Listener found = listener_at(*each); found != Listener::none) return found;
  return Listener::none;
}

}  // namespace penstock
