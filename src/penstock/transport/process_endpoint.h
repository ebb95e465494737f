// The endpoint of a rank that is a process, over any network between processes.
#pragma once

#include <memory>

#include "penstock/transport/buffer_network.h"
#include "penstock/transport/device_channels.h"
#include "penstock/transport/transport.h"

namespace penstock {

/// Throws ConfigError for a deadline that is not above zero. To be called before a network is opened.
void require_deadlines(const TransportOptions& options);

/// This process's endpoint of the world that `network` connects, with the guarantees of control_plane.h and
/// data_plane.h. `device_channels` may be null.
std::unique_ptr<Transport> open_process(std::unique_ptr<BufferNetwork> network, const TransportOptions& options,
                                        std::unique_ptr<DeviceChannels> device_channels = nullptr);

}  // namespace penstock
