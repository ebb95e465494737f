#include "penstock/rank/batch_axes.h"

#include <algorithm>

#include "penstock/base/error.h"

namespace penstock {

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
  std::string text;
  for (std::size_t i = 0; i < dims_.size(); ++i) {
    const std::optional<int> along = dimension(i);
    if (i > 0) text += ' ';
    text += along ? say(*along) : "whole";
  }
  return text.empty() ? "0" : text;
}

std::int64_t BatchAxesOf::samples(const BatchTensors& batch_inputs, const BatchTensors& batch_targets) const {
  std::int64_t samples = targets.samples(batch_targets.list());
  if (samples == 0 && batch_targets.count() == 0) samples = batch_targets.samples_of_none();
  if (samples == 0 && batch_targets.count() == 0) samples = inputs.samples(batch_inputs.list());
  require<ConfigError>(samples >= 1, "a batch needs at least one sample, along dimension 0 of the targets (or that of ",
                       "PipelineOptions::batch_dims); without targets, of the inputs on every process");
  return samples;
}

void require_batch_dims(const PipelineOptions& options, int inputs) {
  const std::size_t dims = options.batch_dims.inputs.size();
  require<ConfigError>(dims <= static_cast<std::size_t>(inputs), "batch_dims has ", dims,
                       " dimensions for inputs, but the network takes ", inputs, ": set at most one for each");
}

std::int64_t first_row_of(const BatchAxes& axes, const Tensors& inputs, const InputRows& rows) {
  require<ConfigError>(static_cast<int>(inputs.size()) == rows.inputs, "the network takes ", rows.inputs,
                       " inputs, not ", inputs.size());
  const std::int64_t given = axes.samples(inputs);
  require<ConfigError>(given == rows.samples || given == rows.share.size() || given == 0, "the inputs have ", given,
                       " rows and the batch ", rows.samples, ": pass the whole batch",
                       rows.may_be_share ? ", or its share_rows" : "");
  return given == rows.samples ? 0 : rows.share.begin;
}

void require_targets(const Loss& loss, const std::vector<Metric>& metrics, const BatchTensors& targets) {
  if (targets.count() > 0) return;
  require<ConfigError>(
      !loss.reads_target(), "the loss '", loss.name,
      "' compares with a target, but this batch has none: pass targets, or give a loss of the outputs alone");
  require<ConfigError>(loss.weight.targets() != TargetUse::first, "the loss '", loss.name,
                       "' weighs a batch by its targets, but this batch has none: leave Loss::weight out, and samples ",
                       "are counted");
  for (const Metric& metric : metrics)
    require<ConfigError>(metric.count.targets() != TargetUse::first, "the metric '", metric.name,
                         "' compares with a target, but this batch has none: leave it out");
}

}  // namespace penstock
