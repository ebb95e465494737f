// Messages with tensors on devices, on their way to another process: copied to the host without a wait of the rank.
//
//   the rank's thread, its stream   producer --- event
//   link stream                                    +-- waits --- copy --- event
//   thread "staging N"                                                      +-- waits --- the message goes on
//
// The rank goes on with its list while its device computes what it sends. Its device computes what comes next while the
// link stream copies. What a rank sends does not change before another rank can have received it and answered; so
// behind each message that it receives, its stream is ordered after the copies that are complete.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <c10/core/Event.h>

#include "penstock/transport/data_plane.h"
#include "penstock/transport/device_hand_over.h"

namespace penstock::devices {

/// The staging of one rank's messages. Its thread begins with the first one. Thread-safe.
class HostStaging {
 public:
  struct Calls {
    /// Gets each message, with its tensors on the CPU and complete, in the order of stage().
    std::function<void(SendRequest)> go_on;
    /// Gets the reason why a message does not go on: the failure of its device, or of go_on.
    std::function<void(const std::string& reason)> fail;
  };

  /// Calls are made on the thread of this object.
  HostStaging(WorldRank rank, Calls calls) : rank_(rank), calls_(std::move(calls)) {}
  /// Waits until all messages have gone on.
  ~HostStaging();
  HostStaging(const HostStaging&) = delete;
  HostStaging& operator=(const HostStaging&) = delete;

  /// Whether a tensor of the message is on a device.
  static bool is_needed(const Message& message);
  /// Takes a message of which is_needed() holds, as the calling thread's current streams compute it; returns at once.
  void stage(SendRequest request);
  /// The calling thread has received a message: its current streams are ordered after the copies of those that have
  /// gone on. Waits for nothing.
  void order_current_streams();

 private:
  struct Copy {
    SendRequest request;
    std::vector<c10::Event> done;  // one per device
  };

  Copy begin(SendRequest request);
  void run();
  void finish(Copy copy);

  const WorldRank rank_;
  const Calls calls_;
  std::mutex mutex_;
  std::condition_variable changed_;
  transport::LinkStreams link_streams_;  // guarded by mutex_
  std::deque<Copy> copies_;              // guarded by mutex_
  std::vector<c10::Event> complete_;     // guarded by mutex_: the newest of each device since order_current_streams()
  bool is_closing_ = false;              // guarded by mutex_
  std::thread thread_;
};

}  // namespace penstock::devices
