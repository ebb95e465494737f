// The rows of a parameter that are one replica's: those whose gradients it sums and, with PipelineOptions::zero, which
// it updates.
#pragma once

#include <cstdint>
#include <string>

#include "penstock/base/ids.h"
#include "penstock/base/split.h"
#include "penstock/base/tensor.h"

namespace penstock::rank {

/// One of `of` replicas.
struct ReplicaOf {
  Replica replica;
  int of = 1;
};

/// Rows of a parameter along its first dimension, which cut its memory. A plain value.
struct ReplicaRows {
  RowRange rows;
  std::int64_t all = 1;  // rows of the parameter; a scalar has one

  bool is_empty() const { return rows.size() == 0 && all > 0; }
  bool is_whole() const { return rows.size() == all; }
  /// These rows of a tensor with the parameter's shape, as a view without autograd history: all of a tensor is itself.
  /// Undefined if there are none, or if `whole` is.
  torch::Tensor in(const torch::Tensor& whole) const;
};

/// The rows of the parameter `name` that are those of one replica; together the replicas have each row once. Parts are
/// about equal and begin at a multiple of 64 numbers, so that a vectorised kernel computes each number as within the
/// whole parameter. A parameter whose rows cannot be cut so belongs to one replica, chosen by its name.
ReplicaRows rows_of(const std::string& name, const torch::Tensor& parameter, const ReplicaOf& part);

/// `rows` for a message, while the sender writes to other rows of their memory. A copy on devices, whose streams wait for
/// each other by whole storages.
torch::Tensor rows_to_send(const torch::Tensor& rows);

}  // namespace penstock::rank
