// Sums of gradients over the replicas of a stage. Each replica sums some rows of each gradient (ReplicaRows) and sends
// the sums to the others: its own rows arrive as *parts*, one message from each replica, and leave as *sums*.
//
// Between hosts the gradients of a stage travel in buckets, each in messages of its own, so that the gradients of the
// last layers, which the backward pass completes first, are under way while it computes the others, and so are the sums
// of those that have arrived (Li et al. 2020, PyTorch Distributed, section 3.2.3). On one host messages take time from
// computations, and all travel at once. Used on its rank's thread. Internal to this module.
#pragma once

#include <string>
#include <vector>

#include "penstock/rank/replica_rows.h"
#include "penstock/rank/shared_parameters.h"

namespace penstock::rank {

/// Which sums over replicas a replica gets: all, or for untied parameters only its rows. In other rows its own gradients
/// remain.
enum class ReducedRows { all, own };

/// A gradient that the replicas sum.
struct Summand {
  std::string name;         // of its parameter
  torch::Tensor like;       // has its shape and type
  torch::Tensor* gradient;  // undefined if there is none

  /// The rows that `replica` sums.
  ReplicaRows rows(const ReplicaGroup& group, Replica replica) const {
    return rows_of(name, like, {replica, group.count()});
  }
  /// The numbers of a replica's rows: a view; undefined if there are none.
  torch::Tensor part(const ReplicaRows& rows) const;
  void put(const ReplicaRows& rows, const torch::Tensor& sum) const;
};
using Summands = std::vector<Summand>;

/// The numbers of a tensor: of a complex one its real and imaginary parts, in a last dimension of size 2.
torch::Tensor as_real(const torch::Tensor& tensor);

/// Sends the numbers of each other replica's rows to it. Does not wait.
void send_parts(const ReplicaGroup& group, const Summands& summands);

/// Replaces this replica's rows of each gradient by their sums over the replicas, in replica order, in memory of their
/// own, and with ReducedRows::all sends them to the others. Waits for the parts of the others. Called on every replica.
void sum_own_rows(const ReplicaGroup& group, const Summands& summands, ReducedRows which);

/// Replaces the other replicas' rows by the sums that they send. Called on every replica after sum_own_rows().
void receive_sums(const ReplicaGroup& group, const Summands& summands);

/// Parameters of a stage whose gradients travel together: indices of Gradients::parameters().
using Bucket = std::vector<std::size_t>;

/// `in_buckets`: of the layers whose backward pass is split, from the last to the first, in buckets of 4 MiB or more;
/// then all others, whose gradients are complete only at the end.
enum class Departure { at_once, in_buckets };

/// The untied parameters in their buckets, the same on every replica. Just one bucket on a device, whose instructions
/// are not complete when its host has queued them.
std::vector<Bucket> buckets_of(const layers::Gradients& gradients, Departure departure);

}  // namespace penstock::rank
