// The public header of the module `transport`: tensors between the ranks of a world, as threads of one process or as
// MPI processes. Every rank holds one endpoint.
//
// Promises, held by one conformance suite over every transport:
//   * `send` never blocks; `receive` waits, as long as the awaited peer lives (liveness.h).
//   * Messages are matched by their tag, so the order of arrival does not matter. A tag is used once.
//   * What is sent is detached and from then on read-only for both sides. Tensors arrive dense, with the same
//     dtype, shape, strides and values on every transport. In process the storage itself is handed over;
//     between processes they arrive on the CPU, wherever they came from.
//   * `abort` ends every wait in the world, on every rank, with the first reason given. `cancel` does so for one step.
//
// An endpoint's send, receive and report_progress are called by its own rank's thread; abort and cancel from any
// thread.
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

/// One value of a message. An undefined tensor is None (an absent value or gradient).
struct Payload {
  torch::Tensor tensor;
  bool requires_grad = false;  // whether the receiver should expect to send a gradient back
};

/// What travels over one link for one micro-batch: every boundary value of that link, in a fixed order.
struct Message {
  std::vector<Payload> payloads;
  std::int64_t sent_ns = 0;     // steady clock of the sender, set by send; 0 where that is another host's: unknown here
  std::int64_t arrived_ns = 0;  // steady clock of the receiver, set on arrival: since then it can be received

  /// How long it was on its way; 0 where unknown.
  std::int64_t transit_ns() const { return sent_ns > 0 && arrived_ns > sent_ns ? arrived_ns - sent_ns : 0; }
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual WorldRank rank() const = 0;
  virtual int size() const = 0;
  /// "threads" or "mpi".
  virtual std::string name() const = 0;
  /// Whether `rank` shares this rank's host: its steady clock, cores and caches.
  virtual bool shares_host(WorldRank rank) const { return rank.value() >= 0; }

  /// Handler `message` to `to` (which may be the own rank) and returns at once.
  /// Throws WorldAborted when the world has been aborted, and TransportError for a tensor that is not strided. A
  /// message of a step that was cancelled is dropped.
  virtual void send(WorldRank to, const Tag& tag, Message message) = 0;

  /// Waits for the message with `tag` from `from`. `waiting_for` is what an error says this rank waits for,
  /// e.g. "1RECV_F5". Throws TransportError when the peer, or a rank that the peer itself waits for, gave no
  /// sign of life for the deadline, and in the other cases of liveness.h ("rank 1 waits for 1RECV_F5 from rank 0, which
  /// has given no answer since 60.0 s, last at 0F5 in step 12 (no sign of life for 60 s)").
  /// Throws WorldAborted, with the reason, when the world has been aborted, and StepCancelled, with the reason, when
  /// the step that `tag` belongs to has been cancelled.
  virtual Message receive(WorldRank from, const Tag& tag, const std::string& waiting_for) = 0;

  /// Declares that every boundary value of `pipeline`, and its gradient, has this shape: messages between processes
  /// need not carry it. Every rank declares the same, before the first such message is sent.
  virtual void declare_shape(std::uint32_t, const std::vector<std::int64_t>&) {}

  /// Tells peers that this rank is alive and begins `instruction`. Cheap: called before every instruction.
  virtual void report_progress(const Position& position) = 0;

  /// Ends every wait on every rank with `reason`. The first reason given anywhere wins; later calls do nothing.
  virtual void abort(const std::string& reason) noexcept = 0;
  /// Ends every wait for messages of `step` on every rank with `reason`, and drops such messages, later ones too. The
  /// world goes on. The first reason that a rank hears wins there; after an abort this does nothing.
  virtual void cancel(const StepKey& step, const std::string& reason) noexcept = 0;
  /// The reason, when the world has been aborted.
  virtual std::optional<std::string> aborted() const = 0;
};

struct TransportOptions {
  /// How long a peer may give no sign of life before a wait for it fails. A process that lives gives one whatever its
  /// rank does; ranks of one process always live, so that there only a circle of waits can fail.
  std::chrono::milliseconds deadline = std::chrono::seconds(60);
  /// How long a peer may make no progress, alive or not, before a wait for it fails; none: as long as it likes.
  std::optional<std::chrono::milliseconds> stall_limit = std::nullopt;
  /// Processes: how long one that opens its endpoint waits until all have.
  std::chrono::milliseconds start_deadline = std::chrono::seconds(60);
  /// Threads: spin briefly before sleeping. Only sensible where ranks x threads <= cores.
  bool spin = false;
};

/// The endpoints of a world of `size` threads, by rank.
std::vector<std::unique_ptr<Transport>> open_threads(int size, const TransportOptions& options);

/// Whether this build can talk MPI at all.
bool mpi_available();

/// This process's endpoint of a world of all processes of the MPI job. The first one starts MPI, which ends with the
/// process. Several worlds, one after the other or at a time, do not meet, whatever became of the earlier ones; every
/// process opens the same ones in the same order. Throws TransportError when a process does not come within
/// options.start_deadline, naming those that did not as far as it can be known, and ConfigError where this build has no
/// MPI. Destroying the endpoint waits until every rank destroys its own, as long as they are alive; after an abort it
/// returns within half a second. A process whose last world failed leaves MPI unfinalized, so that mpirun ends the job.
std::unique_ptr<Transport> open_mpi(const TransportOptions& options);

}  // namespace penstock
