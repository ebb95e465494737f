// Chooses the port at which the processes of a job meet.
#pragma once

namespace penstock {

struct PortRange {
  int first = 0;
  int last = 0;
};

/// The ports that the kernel gives to connections and to listeners without a number (net.ipv4.ip_local_port_range).
PortRange ephemeral_ports();

/// A port of this machine at which nothing listens on any address, taken by chance from those above 10000 that are not
/// in `avoided`: there no connection takes it before the process that it is meant for. Where `avoided` leaves nearly
/// none, one that the kernel chooses. Throws Failure if there is none.
int free_port(const PortRange& avoided = ephemeral_ports());

}  // namespace penstock
