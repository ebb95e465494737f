// The addresses of a rendezvous: that of the store, and that of this host. Torch-free.
#pragma once

#include <string>

#include "penstock/transport/launch_environment.h"

namespace penstock {

/// Throws ConfigError where GLOO_SOCKET_IFNAME names a network interface that this host does not have.
void require_network_interfaces(const Environment& environment);

/// Why a name has no address; empty if it has one.
struct Unresolved {
  std::string why = {};
  /// Whether the servers of names have said that there is none. (In a pod of Kubernetes a name has none before its pod
  /// has started.)
  bool is_final = false;
};
/// Looks the name in MASTER_ADDR up.
Unresolved why_unresolved(const Rendezvous& store, const Environment& environment);

/// The address from which this host reaches `store`: the one at which the other hosts reach this one. A host's own name
/// often means 127.0.1.1, which no other host reaches. Empty where there is no way to the store, and where the user has
/// named an interface.
std::string address_towards(const Rendezvous& store, const Environment& environment);

/// Whether `address` means the loopback interface on every host. A host's own name does so on that host alone.
bool is_loopback(const std::string& address);

/// A socket that is bound to the loopback address of `store`, for the store of c10d, which without one listens on all
/// addresses of the host. Throws TransportError where it cannot be bound.
int loopback_socket(const Rendezvous& store);

/// Who listens at the address of a store.
enum class Listener {
  none,
  silent,  // a store, a program that waits for a request, or a proxy
  other    // certainly no store: it has spoken first
};
/// Takes a second at most, and the time to look up the name.
Listener listener_at(const Rendezvous& store);

}  // namespace penstock
