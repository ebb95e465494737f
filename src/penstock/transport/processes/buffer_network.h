// Carries wire buffers between the processes of a world: the only part of a transport between processes that depends on
// a library. mpi_network.h and gloo_network.h implement it; the endpoint above it is the same for both. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "penstock/base/ids.h"
#include "penstock/transport/processes/peer_processes.h"
#include "penstock/transport/processes/wire_buffer.h"

namespace penstock::devices {
class DeviceChannels;
}  // namespace penstock::devices

namespace penstock {
class Transport;
struct TransportOptions;
}  // namespace penstock

namespace penstock::processes {

/// One process's endpoint. It is open for all processes from its construction on. Functions are called by one thread at
/// a time, which holds calls(), unless their comment says otherwise.
class BufferNetwork {
 public:
  /// A buffer that has arrived completely.
  struct Arrival {
    WorldRank from;
    int kind = 0;
    WireBuffer buffer;
  };
  /// A transfer that has begun and is not complete.
  struct Transfer {
    WorldRank peer;
    std::size_t bytes = 0;
  };
  /// A connection that has ended before its peer closed its endpoint.
  struct Break {
    WorldRank peer;
    std::string reason;
  };

  virtual ~BufferNetwork() = default;
  BufferNetwork(const BufferNetwork&) = delete;
  BufferNetwork& operator=(const BufferNetwork&) = delete;

  // Constant; any thread.
  /// "mpi" or "gloo".
  virtual std::string name() const = 0;
  virtual WorldRank rank() const = 0;
  /// By rank.
  virtual const std::vector<ProcessPlace>& places() const = 0;
  virtual std::mutex& calls() = 0;
  int size() const { return static_cast<int>(places().size()); }
  /// The memory of buffers that are sent and received.
  const std::shared_ptr<WireBufferPool>& pool() const { return pool_; }

  /// Whether somebody must call advance() again and again, because the network never calls `has_news`.
  virtual bool must_be_polled() const = 0;
  /// Once, before any other call that uses the network; any thread. `has_news` is called, on a thread of the network's,
  /// whenever advance() or take_break() has something new, perhaps before this returns; it must not wait for calls().
  virtual void notify(std::function<void()> has_news) = 0;
  /// Once; any thread. `process_ends` is called where the program calls exit() before this object is destroyed: it
  /// should report that to the other processes and return within a second.
  virtual void watch_exit(std::function<void()> process_ends) = 0;

  /// Begins to send `buffer` and returns at once. `kind` is one of control_messages.h. Buffers may overtake each other;
  /// but one that is not of kind_message and has at most `longest_in_order` bytes arrives before those sent after it.
  static constexpr std::size_t longest_in_order = 4 << 10;
  virtual void begin_send(WorldRank to, int kind, WireBuffer buffer) = 0;
  /// Continues all transfers and appends what has arrived. Returns whether there was anything to do.
  virtual bool advance(std::vector<Arrival>& arrived) = 0;
  /// The transfers under way, those that send first.
  virtual std::vector<Transfer> transfers() const = 0;
  /// The next broken connection, each once; none where the network does not notice.
  virtual std::optional<Break> take_break() = 0;

  /// Begins a barrier of all processes. One at a time.
  virtual void begin_barrier() = 0;
  virtual bool is_barrier_done() = 0;
  /// Ends after the last barrier: no process sends any more. `has_news` is not called afterwards.
  virtual void close() = 0;
  /// Gives up all transfers, as far as the library can, because the world has failed. Ends in bounded time. `has_news`
  /// is not called afterwards.
  virtual void abandon() noexcept = 0;

 protected:
  BufferNetwork() = default;

 private:
  const std::shared_ptr<WireBufferPool> pool_ = std::make_shared<WireBufferPool>();
};

/// Throws ConfigError for a deadline that is not above zero. To be called before a network is opened.
void require_deadlines(const TransportOptions& options);

/// This process's endpoint of the world that `network` connects, with the guarantees of control_plane.h and
/// data_plane.h. `device_channels` may be null.
std::unique_ptr<Transport> open_process(std::unique_ptr<BufferNetwork> network, const TransportOptions& options,
                                        std::unique_ptr<devices::DeviceChannels> device_channels = nullptr);

}  // namespace penstock::processes
