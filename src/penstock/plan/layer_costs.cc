#include "penstock/plan/layer_costs.h"

#include <algorithm>
#include <map>
#include <set>

#include "penstock/base/error.h"
#include "penstock/base/hash.h"
#include "penstock/base/json.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view layer_cost_file = "the cost file";
constexpr const char* layer_costs_key = "penstock_layer_costs";
constexpr int layer_costs_version = 1;
constexpr std::int64_t most_ranks = 65536;
constexpr std::int64_t most_samples = std::int64_t{1} << 40;
constexpr double most_bytes = 1e14;
constexpr double most_time = 1e15;  // sums stay far below the largest double
constexpr double least_bandwidth = 1e-6;
constexpr std::size_t most_layers = 65535;
constexpr double largest_slowdown = 1e6;

double bytes(const StrictValue& value) {
  const double amount = value.amount();
  require<DataError>(amount <= most_bytes && amount == static_cast<double>(static_cast<std::int64_t>(amount)),
                     value.place(), " is ", amount, ": bytes are a whole number up to ", most_bytes, " (100 TB)");
  return amount;
}

double time(const StrictValue& value) {
  const double amount = value.amount();
  require<DataError>(amount <= most_time, value.place(), " is ", amount, ": at most ", most_time,
                     " is possible; choose a larger time_unit");
  return amount;
}

double bandwidth(const StrictValue& value) {
  const double amount = value.amount();
  require<DataError>(amount == 0 || amount >= least_bandwidth, value.place(), " is ", amount, ": at least ",
                     least_bandwidth, " is possible, or 0 for a link without a cost per byte");
  return amount;
}

double slowdown_under_load(const StrictValue& value) {
  const double factor = value.amount();
  require<DataError>(factor > 0 && factor <= largest_slowdown, value.place(), " is ", factor,
                     ": it is a factor above 0, 1 if ranks do not slow each other down, and at most ",
                     largest_slowdown);
  return factor;
}

std::string name(const StrictValue& value) {
  std::string text = value.text();
  require<DataError>(!text.empty() && is_plain_text(text), value.place(),
                     " must be one line of text without control characters, and not empty");
  return text;
}

/// Commas separate the names of layers in --partition.
std::string layer_name(const StrictValue& value) {
  std::string text = name(value);
  require<DataError>(text.find(',') == std::string::npos, value.place(), " is '", text,
                     "': commas separate the names in a list of layers; use another character");
  return text;
}

LayerCost read_layer(const StrictValue& layer) {
  layer.require_members({"name", "forward", "input_grad", "weight_grad", "activation_bytes", "parameter_bytes",
                         "boundary_bytes", "weight_grad_fused", "backward", "forward_cached", "input_grad_cached",
                         "update", "gradient_bytes", "optimizer_bytes", "block"});
  LayerCost read{.name = layer_name(layer["name"]),
                 .forward = time(layer["forward"]),
                 .input_grad = time(layer["input_grad"]),
                 .weight_grad = time(layer["weight_grad"]),
                 .activation_bytes = bytes(layer["activation_bytes"]),
                 .parameter_bytes = bytes(layer["parameter_bytes"]),
                 .boundary_bytes = bytes(layer["boundary_bytes"])};
  if (layer.has("weight_grad_fused")) read.weight_grad_fused = time(layer["weight_grad_fused"]);
  if (layer.has("backward")) read.backward = time(layer["backward"]);
  if (layer.has("forward_cached")) read.forward_cached = time(layer["forward_cached"]);
  if (layer.has("input_grad_cached")) read.input_grad_cached = time(layer["input_grad_cached"]);
  if (layer.has("update")) read.update = time(layer["update"]);
  const auto part_of_parameters = [&](const char* member) -> std::optional<double> {
    if (!layer.has(member)) return std::nullopt;
    const double part = bytes(layer[member]);
    require<DataError>(part <= read.parameter_bytes, layer[member].place(), " is ", part, ", and parameter_bytes is ",
                       read.parameter_bytes, ": parameter_bytes contains it");
    return part;
  };
  read.gradient_bytes = part_of_parameters("gradient_bytes");
  read.optimizer_bytes = part_of_parameters("optimizer_bytes");
  if (layer.has("block")) read.block = name(layer["block"]);
  return read;
}

std::vector<LayerCost> read_layers(const StrictValue& list) {
  std::vector<LayerCost> read;
  std::map<std::string, std::size_t> places;
  for (const StrictValue& layer : list.list()) {
    read.push_back(read_layer(layer));
    const auto [known, is_new] = places.try_emplace(read.back().name, read.size() - 1);
    require<DataError>(is_new, layer["name"].place(), " is '", read.back().name, "', and so is layers[", known->second,
                       "].name: a plan identifies layers by their names; number them, for example");
  }
  require<DataError>(!read.empty(), list.place(), " are empty: there is nothing to plan");
  require<DataError>(read.size() <= most_layers, list.place(), " are ", read.size(), ": at most ", most_layers,
                     " are possible");
  return read;
}

std::vector<int> read_micro_batches(const StrictValue& list, std::int64_t samples) {
  std::vector<int> read;
  std::set<int> seen;
  for (const StrictValue& one : list.list()) {
    read.push_back(static_cast<int>(one.whole(1, std::min(samples, most_micro_batches))));
    require<DataError>(seen.insert(read.back()).second, one.place(), " is ", read.back(), " for the second time");
  }
  require<DataError>(!read.empty(), list.place(), " is empty: leave it out, or list what is to be tried");
  return read;
}

}  // namespace

LayerCosts read_layer_costs(std::string_view text) {
  const nlohmann::json document = parse_strictly(text, layer_cost_file);
  const StrictValue root(document, layer_cost_file);
  require<DataError>(!root.has("penstock_costs"), layer_cost_file,
                     " has costs of stages, which `penstock simulate --cost-file` ",
                     "takes; a plan needs costs of layers (docs/cost_file.md)");
  root.require_version(layer_costs_key, layer_costs_version, ": docs/cost_file.md describes the format");
  root.require_members({layer_costs_key, "time_unit", "ranks", "samples", "micro_batch_size", "micro_batches", "link",
                        "weight_share", "word_overhead", "spread", "cache_bytes", "memory_cap_bytes", "contention",
                        "first_stage_splits", "slowdown", "send_share", "per_step", "kernels", "layers"});
  LayerCosts costs;
  costs.time_unit = name(root["time_unit"]);
  costs.ranks = static_cast<int>(root["ranks"].whole(1, most_ranks));
  costs.samples = root["samples"].whole(1, most_samples);
  costs.micro_batch_size = root["micro_batch_size"].whole(1, most_samples);
  if (root.has("micro_batches")) costs.micro_batches = read_micro_batches(root["micro_batches"], costs.samples);
  const StrictValue link = root["link"];
  link.require_members({"bytes_per_unit", "latency"});
  costs.link = {bandwidth(link["bytes_per_unit"]), time(link["latency"])};
  if (root.has("weight_share")) costs.weight_share = root["weight_share"].share();
  if (root.has("word_overhead")) costs.instruction_overhead = time(root["word_overhead"]);
  if (root.has("spread")) costs.spread = root["spread"].share();
  if (root.has("cache_bytes")) costs.cache_bytes = bytes(root["cache_bytes"]);
  if (root.has("memory_cap_bytes")) costs.memory_cap_bytes = bytes(root["memory_cap_bytes"]);
  if (root.has("contention")) costs.slowdown_under_load = slowdown_under_load(root["contention"]);
  if (root.has("first_stage_splits")) costs.first_stage_splits = root["first_stage_splits"].boolean();
  if (root.has("slowdown")) costs.terms.slowdown = time(root["slowdown"]);
  if (root.has("send_share")) costs.terms.send_share = time(root["send_share"]);
  if (root.has("per_step")) costs.terms.per_step = time(root["per_step"]);
  if (root.has("kernels")) costs.kernels = root["kernels"].lines();
  costs.layers = read_layers(root["layers"]);
  return costs;
}

std::string write_layer_costs(const LayerCosts& costs) {
  // Bytes are written as integers, without a fraction.
  const auto whole = [](double amount) {
    require<DataError>(amount >= 0 && amount <= most_bytes, "these costs cannot be written: ", amount, " bytes");
    return static_cast<std::int64_t>(amount);
  };
  ordered_json document = {{layer_costs_key, layer_costs_version},
                           {"time_unit", costs.time_unit},
                           {"ranks", costs.ranks},
                           {"samples", costs.samples},
                           {"micro_batch_size", costs.micro_batch_size}};
  if (!costs.micro_batches.empty()) document["micro_batches"] = costs.micro_batches;
  document["link"] = {{"bytes_per_unit", costs.link.bytes_per_unit}, {"latency", costs.link.latency}};
  if (costs.weight_share != 1) document["weight_share"] = costs.weight_share;
  if (costs.spread != 0) document["spread"] = costs.spread;
  if (costs.instruction_overhead != 0) document["word_overhead"] = costs.instruction_overhead;
  if (costs.cache_bytes != 0) document["cache_bytes"] = whole(costs.cache_bytes);
  if (costs.memory_cap_bytes) document["memory_cap_bytes"] = whole(*costs.memory_cap_bytes);
  if (costs.slowdown_under_load != 1) document["contention"] = costs.slowdown_under_load;
  if (!costs.first_stage_splits) document["first_stage_splits"] = false;
  if (costs.terms.slowdown != 0) document["slowdown"] = costs.terms.slowdown;
  if (costs.terms.send_share != 0) document["send_share"] = costs.terms.send_share;
  if (costs.terms.per_step != 0) document["per_step"] = costs.terms.per_step;
  if (!costs.kernels.empty()) document["kernels"] = lines_of(costs.kernels);
  document["layers"] = ordered_json::array();
  for (const LayerCost& layer : costs.layers) {
    ordered_json& members = document["layers"].emplace_back();
    members = {{"name", layer.name},
               {"forward", layer.forward},
               {"input_grad", layer.input_grad},
               {"weight_grad", layer.weight_grad},
               {"activation_bytes", whole(layer.activation_bytes)},
               {"parameter_bytes", whole(layer.parameter_bytes)},
               {"boundary_bytes", whole(layer.boundary_bytes)}};
    if (layer.weight_grad_fused) members["weight_grad_fused"] = *layer.weight_grad_fused;
    if (layer.backward) members["backward"] = *layer.backward;
    if (layer.forward_cached) members["forward_cached"] = *layer.forward_cached;
    if (layer.input_grad_cached) members["input_grad_cached"] = *layer.input_grad_cached;
    if (layer.update != 0) members["update"] = layer.update;
    if (layer.gradient_bytes) members["gradient_bytes"] = whole(*layer.gradient_bytes);
    if (layer.optimizer_bytes) members["optimizer_bytes"] = whole(*layer.optimizer_bytes);
    if (!layer.block.empty()) members["block"] = layer.block;
  }
  std::string text = exact_json_text(document, "this cost list", 2) + "\n";
  require<DataError>(read_layer_costs(text) == costs, "these costs have values that a cost file cannot represent");
  return text;
}

std::vector<std::string> blocks_of(const LayerCosts& costs) {
  std::vector<std::string> blocks;
  for (const LayerCost& layer : costs.layers) blocks.push_back(layer.block);
  return blocks;
}

std::vector<int> candidate_micro_batches(const LayerCosts& costs) {
  if (!costs.micro_batches.empty()) return costs.micro_batches;
  const std::int64_t m = (costs.samples + costs.micro_batch_size - 1) / costs.micro_batch_size;
  require<ConfigError>(m <= most_micro_batches, costs.samples, " samples in micro-batches of ", costs.micro_batch_size,
                       " are ", m, " micro-batches, and at most ", most_micro_batches,
                       " are possible: say with micro_batches which ones to try");
  return {static_cast<int>(m)};
}

std::string fingerprint(const LayerCosts& costs) { return hash_digits(text_hash(write_layer_costs(costs))); }

std::string write_stage_layers(const StageLayers& stages) {
  require<DataError>(!stages.empty(), "there are no stages to name the layers of");
  std::string text;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    require<DataError>(!stages[s].empty(), "stage ", s, " has no layers to name");
    if (s > 0) text += ';';
    for (std::size_t layer = 0; layer < stages[s].size(); ++layer) {
      const std::string& name = stages[s][layer];
      require<DataError>(!name.empty() && name.find_first_of(",;") == std::string::npos, "layer ", layer, " of stage ",
                         s, " is named '", name, "': a name is not empty and has no ',' or ';' in it");
      if (layer > 0) text += ',';
      text += name;
    }
  }
  return text;
}

StageLayers read_stage_layers(std::string_view text) {
  StageLayers stages;
  for (const std::string_view stage : separated(text, ';')) {
    stages.emplace_back();
    for (const std::string_view layer : separated(stage, ',')) {
      stages.back().emplace_back(layer);
      require<DataError>(!layer.empty(), "layer ", stages.back().size() - 1, " of stage ", stages.size() - 1,
                         " has no name: write layers as a,b;c,d");
    }
  }
  return stages;
}

}  // namespace penstock
