#include "penstock/rank/batch.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "penstock/base/device_copy.h"
#include "penstock/base/error.h"
#include "penstock/base/hash.h"
#include "penstock/base/text.h"
#include "penstock/world/collectives.h"

namespace penstock::rank {

BatchAxes::BatchAxes(std::string what, SampleDims dims) : what_(std::move(what)), dims_(std::move(dims)) {
  for (const std::optional<int>& along : dims_)
    require<ConfigError>(along.value_or(0) >= 0, "the samples of ", what_, " lie along dimension ", along.value_or(0),
                         ": count dimensions from 0");
}

std::int64_t BatchAxes::samples(const Tensors& tensors) const {
  std::int64_t samples = 0;
  std::size_t first = 0;
  bool is_known = false;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::optional<int> along = dimension(i);
    if (!along) continue;
    require<ConfigError>(tensors[i].defined() && tensors[i].dim() > *along, "number ", i, " of the ", what_, " has ",
                         tensors[i].defined() ? say("sizes ", tensors[i].sizes()) : std::string("no value"),
                         ", but its samples lie along dimension ", *along,
                         ": pass it with them, or set PipelineOptions::batch_dims");
    const std::int64_t own = tensors[i].size(*along);
    require<ConfigError>(!is_known || own == samples, "number ", first, " of the ", what_, " has ", samples,
                         " rows and number ", i, " has ", own,
                         ": pass as many of each, or set PipelineOptions::batch_dims to none for what "
                         "all micro-batches share");
    if (!is_known) first = i;
    is_known = true;
    samples = own;
  }
  return samples;
}

torch::Tensor BatchAxes::rows(const torch::Tensor& tensor, std::size_t index, RowRange rows) const {
  const std::optional<int> along = dimension(index);
  return along ? tensor.narrow(*along, rows.begin, rows.size()) : tensor;
}

Tensors BatchAxes::rows(const Tensors& tensors, RowRange range) const {
  Tensors some;
  for (std::size_t i = 0; i < tensors.size(); ++i) some.push_back(rows(tensors[i], i, range));
  return some;
}

Tensors BatchAxes::join(const std::vector<Tensors>& parts) const {
  const torch::NoGradGuard no_grad;
  std::vector<Tensors> columns;  // by tensor
  for (const Tensors& part : parts) {
    columns.resize(std::max(columns.size(), part.size()));
    for (std::size_t i = 0; i < part.size(); ++i)
      if (part[i].defined()) columns[i].push_back(part[i].detach().cpu());
  }
  Tensors joined;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::optional<int> along = dimension(i);
    if (!along && columns[i].size() > 1) columns[i].resize(1);
    for (const torch::Tensor& part : columns[i])
      require<ScheduleError>(!along || part.dim() > *along, "output ", i, " of the network ",
                             part.dim() == 0 ? std::string("is a single number") : say("has sizes ", part.sizes()),
                             ": inference joins the rows of micro-batches along dimension ", along.value_or(0),
                             ", so return a value for each row, or set PipelineOptions::batch_dims.outputs");
    if (columns[i].empty())
      joined.emplace_back();
    else
      joined.push_back(columns[i].size() == 1 ? columns[i].front().clone() : torch::cat(columns[i], *along));
  }
  return joined;
}

std::string BatchAxes::text() const {
  return dims_.empty() ? "0" : listed(dims_, " ", [](const auto& along) { return along ? say(*along) : "whole"; });
}

std::int64_t BatchAxesOf::samples(const BatchTensors& batch_inputs, const BatchTensors& batch_targets) const {
  std::int64_t samples = targets.samples(batch_targets.list());
  if (samples == 0 && batch_targets.count() == 0) samples = batch_targets.samples_of_none();
  if (samples == 0 && batch_targets.count() == 0) samples = inputs.samples(batch_inputs.list());
  require<ConfigError>(samples >= 1, "a batch needs at least one sample, along dimension 0 of the targets (or that of ",
                       "PipelineOptions::batch_dims); without targets, of the inputs on every process");
  return samples;
}

RowRange BatchLayout::share(Replica replica) const {
  return split(shape_.samples, {.index = replica.value(), .of = shape_.replicas});
}

int BatchLayout::micro_batches(Replica replica) const {
  return static_cast<int>(std::min<std::int64_t>(shape_.micro_batches, share(replica).size()));
}

RowRange BatchLayout::rows(Replica replica, MicroBatch micro_batch) const {
  const RowRange share_rows = share(replica);
  const RowRange part = split(share_rows.size(), {.index = micro_batch.value(), .of = micro_batches(replica)});
  return {share_rows.begin + part.begin, share_rows.begin + part.end};
}

torch::Tensor usable_rows(const torch::Tensor& rows, const RowsUse& use) {
  if (!rows.defined()) return rows;
  const torch::Tensor there = to_device(rows, use.device);
  return use.outlive_result && there.is_same(rows) ? there.clone() : there;
}

LossFactors loss_factors(const Loss& loss, const LossReduction& how, const WholeTargets& targets,
                         const BatchLayout& layout, Replica replica, int replicas) {
  LossFactors factors;
  std::vector<double> weights;  // of this replica
  int counted_replicas = 0;
  for (int r = 0; r < replicas; ++r) {
    double replica_weight = 0;
    for (int i = 0; i < layout.micro_batches(Replica(r)); ++i) {
      const RowRange rows = layout.rows(Replica(r), MicroBatch(i));
      const double weight =
          loss.weight ? loss.weight(targets.axes.rows(targets.tensors, rows)) : static_cast<double>(rows.size());
      replica_weight += weight;
      factors.total_weight += weight;
      if (Replica(r) == replica) weights.push_back(weight);
    }
    if (replica_weight > 0) ++counted_replicas;
  }
  // The average over the replicas: weighted by samples for `mean`, or the mean of each replica's sum of means for
  // `sum`.
  const auto averaged = [&](Reduction reduction, double weight) {
    if (weight <= 0) return 0.0;
    return 1 / (reduction == Reduction::mean ? factors.total_weight : weight * counted_replicas);
  };
  const double replica_factor = how.replica_reduction == Reduction::sum ? counted_replicas : 1;
  for (const double weight : weights) {
    factors.gradient.push_back(averaged(how.reduction, weight) * replica_factor);
    factors.reported.push_back(how.reported_loss ? averaged(*how.reported_loss, weight) : factors.gradient.back());
  }
  return factors;
}

namespace {

constexpr std::uint64_t compared_at_first = 3;
constexpr std::size_t hashed_blocks = 64, block_bytes = 1024;

std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

std::uint64_t hash_of(std::uint64_t hash, const char* bytes, std::size_t count) {
  std::uint64_t word = 0;
  for (; count >= sizeof(word); bytes += sizeof(word), count -= sizeof(word)) {
    std::memcpy(&word, bytes, sizeof(word));
    hash = mixed(hash, word);
  }
  word = 0;
  std::memcpy(&word, bytes, count);
  return mixed(hash, word);
}

/// The tensor in contiguous memory; of a large one that is not contiguous, only some of its rows.
torch::Tensor walkable(const torch::Tensor& tensor) {
  if (tensor.is_contiguous() && tensor.device().is_cpu()) return tensor;
  const std::int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
  constexpr std::int64_t taken = 8;
  if (rows <= taken) return tensor.contiguous().cpu();
  const torch::Tensor index = torch::arange(taken, torch::kInt64) * ((rows - 1) / (taken - 1));
  return tensor.index_select(0, index.to(tensor.device())).contiguous().cpu();
}

/// The error text for all ranks' digests, by world rank; empty if no two differ that should be equal.
std::string difference(const RankContext& context, std::uint64_t training_step, const std::vector<Message>& all) {
  struct First {
    std::size_t rank;
    std::string digest;
  };
  std::map<std::pair<std::size_t, std::size_t>, First> known;  // by text, and replica for inputs
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    for (std::size_t number = 0; number < all[rank].payloads.size(); ++number) {
      const std::string digest = transport::text_in(all[rank], number);
      if (digest.empty()) continue;
      const std::size_t replica = number == 0 ? 0 : rank % static_cast<std::size_t>(context.replicas);
      const auto [first, is_new] = known.try_emplace({number, replica}, First{rank, digest});
      if (is_new || first->second.digest == digest) continue;
      return say("ranks were given different batches in training step ", training_step + 1, ": the ",
                 number == 0 ? std::string("targets are ") : say("rows of input ", number - 1, " are "),
                 first->second.digest, " on rank ", first->second.rank, " and ", digest, " on rank ", rank,
                 ": every process passes the same batch, so seed what draws, shuffles or augments data alike on all ",
                 "of them (compare_batches = 0 turns this comparison off)");
    }
  return "";
}

}  // namespace

std::string digest_of(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  const torch::NoGradGuard no_grad;
  const torch::Tensor walked = walkable(tensor.detach());
  const auto* bytes = static_cast<const char*>(walked.const_data_ptr());
  const std::size_t size = walked.nbytes();
  std::uint64_t hash = size;
  if (size <= hashed_blocks * block_bytes) {
    hash = hash_of(hash, bytes, size);
  } else {
    for (std::size_t block = 0; block < hashed_blocks; ++block)
      hash = hash_of(hash, bytes + (size - block_bytes) / (hashed_blocks - 1) * block, block_bytes);
  }
  return say(c10::toString(tensor.scalar_type()), " ", tensor.sizes(), " #", hash_digits(hash));
}

bool is_compared(std::uint64_t training_step, int every) {
  return every > 0 && (training_step < compared_at_first || training_step % static_cast<std::uint64_t>(every) == 0);
}

void compare_digests(const RankContext& context, const Tag& tag, const std::vector<std::string>& digests,
                     std::uint64_t training_step) {
  Message own;
  for (const std::string& digest : digests) own.payloads.push_back(transport::payload_of(digest));
  const auto decide = [&](const std::vector<Message>& all) {
    return transport::message_of(difference(context, training_step, all));
  };
  const std::string error_text = transport::text_in(agree(
      context, tag, std::move(own), decide, {.parts = "a hash of its batch", .decision = "the comparison of batches"}));
  if (!error_text.empty()) throw BatchesDiffer(error_text);
}

}  // namespace penstock::rank
