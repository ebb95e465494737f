// The control plane of a rank's endpoint: who the ranks are, where each one is, and the end of all waits after a
// failure. What ranks agree on (world/collectives.h) travels as messages of the data plane, so that its waits are like
// all others: they have a deadline, and end with the world. LibTorch-free.
//
// Guarantees, which one conformance suite checks for every transport:
//   * `abort` ends every wait in the world, on every rank. `cancel` does so for one step, or for one pipeline.
//   * Worlds are separate: what happens to one does not reach another of the same processes.
// A process that ends while its world is open aborts the world on the other processes of its host, over Gloo on all;
// tests of faults between processes check that.
#pragma once

#include <optional>
#include <string>

#include "penstock/base/error.h"
#include "penstock/base/ids.h"
#include "penstock/transport/tag.h"

namespace penstock::transport {
struct PeerStatus;  // progress.h
}  // namespace penstock::transport

namespace penstock {

/// A wait or a send ended because some rank aborted the world: a consequence of a failure, never its cause.
class WorldAborted : public TransportError {
 public:
  using TransportError::TransportError;
};

/// A wait ended because the step that its message belongs to was cancelled. The world remains usable.
class StepCancelled : public TransportError {
 public:
  using TransportError::TransportError;
};

/// The same where all messages of the pipeline were cancelled.
class PipelineCancelled : public StepCancelled {
 public:
  using StepCancelled::StepCancelled;
};

/// The rank's own thread calls report_progress; any thread calls the others.
class ControlPlane {
 public:
  virtual ~ControlPlane() = default;

  virtual WorldRank rank() const = 0;
  virtual int size() const = 0;
  /// "threads", "mpi", "gloo", "nccl" or the name of other DeviceGroups.
  virtual std::string name() const = 0;
  /// Whether `rank` runs on this rank's host: the same steady clock, cores and caches.
  virtual bool shares_host(WorldRank rank) const { return rank.value() >= 0; }

  /// Records for peers that this rank is alive and begins the instruction in `position`. Called before every
  /// instruction; costs about one reading of the clock.
  virtual void report_progress(const Position& position) = 0;
  /// What this rank has recorded of itself.
  virtual transport::PeerStatus status() const = 0;

  /// Ends every wait on every rank with `reason`. Each rank uses the first reason that reaches it, so that among
  /// threads all use the same; later calls do nothing.
  virtual void abort(const std::string& reason) noexcept = 0;
  /// Ends every wait for messages of `step` on every rank with `reason`, and drops such messages, later ones too.
  /// For WorkKind::all, waits end with PipelineCancelled. The world remains
  /// usable. Each rank uses the first reason that reaches it; after an abort this does nothing. Aborts unless
  /// can_cancel(), except for WorkKind::background.
  virtual void cancel(const StepKey& step, const std::string& reason) noexcept = 0;
  /// Whether the world survives cancel(). False with device channels, whose remaining transfers would meet those of the
  /// next step.
  virtual bool can_cancel() const { return true; }
  /// The reason, when the world has been aborted.
  virtual std::optional<std::string> aborted() const = 0;
  /// Whether `rank` can report nothing any more, as far as this rank knows: its process has ended, or has given no sign
  /// of life for the deadline. False where another rank has aborted the world.
  virtual bool is_lost(WorldRank) const { return false; }
};

}  // namespace penstock
