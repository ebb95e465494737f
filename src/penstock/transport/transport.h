// The public header of the module `transport`: tensors between the ranks of a world, as threads of one process or as
// processes that MPI or Gloo connects. Every rank holds one endpoint.
//
// Guarantees, which one conformance test suite checks for every transport:
//   * `send` never blocks; `receive` waits as long as the awaited peer lives (liveness.h).
//   * Messages are matched by their tag, so the order of arrival does not matter. A tag is used once.
//   * Sent tensors are detached and from then on read-only for both sides. They arrive dense, with the same dtype,
//     shape, strides and values on every transport. Within a process they share their storage; between processes they
//     arrive on the CPU, whatever device they were sent from; on the device between ranks that connect() has joined.
//   * Tensors on a device are sent as the sender's current stream computes them, and received for the receiver's
//     current stream on its current device (device_hand_over.h). Neither waits for a device. With a data plane they do
//     not pass through the memory of the host (data_plane.h).
//   * `abort` ends every wait in the world, on every rank, with the first reason given. `cancel` does so for one step.
//   * A process that ends while its world is open aborts the world on the other processes of its host; over Gloo on all.
//
// An endpoint's send, receive and report_progress are called by its own rank's thread; abort and cancel from any
// thread. Messages of Traffic::background are sent and received by one other thread at a time, which waits as the
// rank's thread does; peers do not see its waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/base/ids.h"
#include "penstock/base/tensor.h"
#include "penstock/transport/tag.h"
#include "penstock/transport/world_aborted.h"

namespace penstock {

class DeviceEvents;

/// One value of a message. An undefined tensor stands for an absent value or gradient.
struct Payload {
  torch::Tensor tensor;
  bool requires_grad = false;  // whether the receiver should expect to send a gradient back
};

/// All boundary values of one link for one micro-batch, in a fixed order.
struct Message {
  std::vector<Payload> payloads;
  std::int64_t sent_ns = 0;     // steady clock of the sender, set by send; 0 where the sender is on another host
  std::int64_t arrived_ns = 0;  // steady clock of the receiver, set on arrival, from when on it can be received
  /// When tensors on devices are complete, within a process; null where all are on the CPU.
  std::shared_ptr<const DeviceEvents> ready = nullptr;

  /// The transit time in nanoseconds; 0 where unknown.
  std::int64_t transit_ns() const { return sent_ns > 0 && arrived_ns > sent_ns ? arrived_ns - sent_ns : 0; }
};

struct PeerStatus;  // progress.h

/// An ordered pair of ranks: `from` sends to `to`.
struct RankPair {
  WorldRank from;
  WorldRank to;

  friend auto operator<=>(const RankPair&, const RankPair&) = default;
};

/// One rank's endpoint of a world.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual WorldRank rank() const = 0;
  virtual int size() const = 0;
  /// "threads", "mpi", "gloo" or "nccl".
  virtual std::string name() const = 0;
  /// Whether `rank` runs on this rank's host: the same steady clock, cores and caches.
  virtual bool shares_host(WorldRank rank) const { return rank.value() >= 0; }

  /// Sends `message` to `to` (which may be this rank itself) and returns at once. Drops a message of a cancelled step.
  /// Throws WorldAborted when the world has been aborted, and TransportError for a tensor that is not strided.
  virtual void send(WorldRank to, const Tag& tag, Message message) = 0;

  /// Waits for the message with `tag` from `from`. `waiting_for` names the message in errors, e.g. "1RECV_F5".
  /// Throws TransportError when the peer, or a rank that the peer itself waits for, gave no sign of life for the
  /// deadline, and in the other cases of liveness.h ("rank 1 waits for 1RECV_F5 from rank 0, which has given no answer
  /// since 60.0 s, last at 0F5 in step 12 (no sign of life for 60 s)"). Throws WorldAborted, with the reason, when the
  /// world has been aborted, and StepCancelled, with the reason, when the step that `tag` belongs to has been
  /// cancelled.
  virtual Message receive(WorldRank from, const Tag& tag, const std::string& waiting_for) = 0;

  /// Declares the shape of every boundary value of `pipeline` and of its gradient; messages between processes then omit
  /// it. Every rank declares the same shape, before the first such message is sent.
  virtual void declare_shape(std::uint32_t, const std::vector<std::int64_t>&) {}

  /// Whether tensors on devices travel to other processes without the memory of the host, once their ranks are connected.
  virtual bool has_data_plane() const { return false; }
  /// What connect() joins.
  struct Connections {
    std::uint32_t pipeline = 0;
    std::vector<RankPair> pairs = {};
    c10::Device device = c10::kCPU;  // of this rank
  };
  /// Connects this rank, whose device is the current one, with the others of `pairs` for the messages of the pipeline;
  /// nothing without a data plane. The ranks of a pair call it at the same time, with their common pairs in the same
  /// order. Throws ConfigError where their devices cannot be joined, and otherwise as receive().
  virtual void connect(const Connections&) {}

  /// Records for peers that this rank is alive and begins the instruction in `position`. Called before every
  /// instruction; costs about one reading of the clock.
  virtual void report_progress(const Position& position) = 0;

  /// What this rank has recorded of itself. May be called from any thread.
  virtual PeerStatus status() const = 0;

  /// Ends every wait on every rank with `reason`. The first reason given on any rank is used; later calls do nothing.
  virtual void abort(const std::string& reason) noexcept = 0;
  /// Ends every wait for messages of `step` on every rank with `reason`, and drops such messages, later ones too. The
  /// world remains usable. Each rank uses the first reason that reaches it; after an abort this does nothing. With a data
  /// plane this aborts, except for work of Traffic::background.
  virtual void cancel(const StepKey& step, const std::string& reason) noexcept = 0;
  /// The reason, when the world has been aborted.
  virtual std::optional<std::string> aborted() const = 0;
  /// Whether `rank` can report nothing any more, as far as this rank knows: its process has ended, or has given no sign
  /// of life for the deadline. False where another rank has aborted the world. May be called from any thread.
  virtual bool is_lost(WorldRank) const { return false; }
};

struct TransportOptions {
  /// A wait for a peer fails when the peer gave no sign of life for this long. A live process answers whatever its rank
  /// does. Ranks of one process always live, so that among them only a circular wait fails.
  std::chrono::milliseconds deadline = std::chrono::seconds(60);
  /// A wait for a peer fails when the peer made no progress for this long, alive or not; none: no limit.
  std::optional<std::chrono::milliseconds> stall_limit = std::nullopt;
  /// Processes: how long opening an endpoint waits until all processes have opened theirs.
  std::chrono::milliseconds start_deadline = std::chrono::seconds(60);
  /// Threads: spin briefly before sleeping. Only sensible where ranks x threads <= cores.
  bool spin = false;
};

/// The endpoints of a world of `size` threads, by rank.
std::vector<std::unique_ptr<Transport>> open_threads(int size, const TransportOptions& options);

/// Whether this build supports MPI.
bool mpi_available();

/// This process's endpoint of a world of all processes of the MPI job. The first call initializes MPI, which is
/// finalized when the process ends. Several worlds, successive or concurrent, have separate messages, even after one
/// has failed; every process opens the same worlds in the same order. Throws TransportError when a process does not
/// come within options.start_deadline, naming the missing processes where they are known, and ConfigError where this
/// build has no MPI. Destroying the endpoint waits until every live rank destroys its own; after an abort it returns
/// within half a second. A process whose last world failed does not finalize MPI, so that mpirun ends the job.
std::unique_ptr<Transport> open_mpi(const TransportOptions& options);

/// Whether this build and its LibTorch support Gloo.
bool gloo_available();

/// This process's endpoint of a world of all processes that torchrun, or another launcher, has started, as
/// launch_environment.h reads rank, size and rendezvous from the environment. Worlds are as those of open_mpi(). Throws
/// ConfigError where the environment does not say enough, for processes of another build, and where this build has no
/// Gloo; TransportError when a process does not come within options.start_deadline, naming the missing ones. A process
/// that would be ended by SIGPIPE ignores it from then on.
std::unique_ptr<Transport> open_gloo(const TransportOptions& options);

/// Whether this build and its LibTorch support NCCL.
bool nccl_available();

/// As open_gloo(), with NCCL as the data plane for tensors on GPUs: nccl_groups(). Throws ConfigError where this build has
/// no NCCL or no Gloo.
std::unique_ptr<Transport> open_nccl(const TransportOptions& options);

}  // namespace penstock
