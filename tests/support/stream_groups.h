// Groups of two ranks on test devices with the rules of NCCL, for device channels (transport/devices/device_channels.h), all of
// them in this process.
//
//   the sender's current stream    producer --- event
//   stream of its group                           +-- waits --- copy --- event, behind which the send is complete
//   stream of the receiver's group   (memory) --- event -- waits --+        +-- event, behind which the receive is
//
// The k-th send meets the k-th receive; neither waits for the other, but Work::wait() waits until both are there.
// Nothing is kept of the two current streams but these orders, so that every wait that a user of NCCL would lack is an
// error of the test device.
#pragma once

#include "penstock/transport/joined_processes.h"

namespace penstock::test {

/// The name of the transport is "streams".
DeviceGroups stream_groups();

}  // namespace penstock::test
