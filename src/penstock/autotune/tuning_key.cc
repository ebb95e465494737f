#include "penstock/autotune/tuning_key.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

#include <ATen/Version.h>
#include <torch/version.h>

#include "penstock/autotune/measured_options.h"
#include "penstock/autotune/sample.h"
#include "penstock/base/error.h"
#include "penstock/base/hash.h"
#include "penstock/kernels/cpu_kernels.h"
#include "penstock/model/graph.h"
#include "penstock/model/loss.h"
#include "penstock/pipeline/fingerprint.h"
#include "penstock/pipeline/partition_network.h"
#include "penstock/pipeline/schedule_cache.h"
#include "penstock/rank/options.h"
#include "penstock/schedule/schedule.h"
#include "penstock/world/device.h"
#include "penstock/world/host_memory.h"
#include "penstock/world/rank_context.h"

namespace penstock {
namespace {

/// The model of the first processor as Linux names it.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  return "unknown";
}

std::string in_one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  std::ranges::replace(text, '\r', ' ');
  return text;
}

std::string shape_of(const torch::Tensor& tensor) {
  return tensor.defined() ? say(c10::toString(tensor.scalar_type()), tensor.sizes()) : "none";
}

std::string shapes_of(const std::vector<torch::Tensor>& tensors) {
  std::string text;
  for (const torch::Tensor& tensor : tensors) text += " " + shape_of(tensor);
  return text;
}

/// The type and settings of a layer, as LibTorch prints them, and the shapes of its parameters and buffers.
std::string layer_text(const Node& node) {
  const LayerShapes& shapes = shapes_of(*node.layer);
  std::ostringstream text;
  text << shapes.text;
  for (const auto& parameter : shapes.parameters)
    text << " " << parameter.key() << " " << shape_of(parameter.value())
         << (parameter.value().requires_grad() ? "" : " frozen");
  for (const auto& buffer : shapes.buffers) text << " " << buffer.key() << " " << shape_of(buffer.value());
  for (const auto& [name, owner] : node.ties) text << " " << name << " = " << owner.full_name();
  return in_one_line(text.str());
}

std::string node_text(const Node& node, const PipelineOptions& options) {
  std::ostringstream text;
  text << "layer " << in_one_line(node.name) << " of";
  for (const ValueRef& input : node.inputs) text << " " << input.node << "." << input.output;
  if (node.stage) text << ", stage " << *node.stage;
  if (!node.in_block.empty()) text << ", in " << in_one_line(node.in_block);
  if (node.recompute.value_or(options.recompute)) text << ", recomputed";
  text << ": " << (node.is_layer() ? layer_text(node) : "function");
  return text.str();
}

/// The options on which measurements of single layers depend with a schedule that is not chosen.
std::string schedule_text(const PipelineOptions& options, int ranks) {
  if (options.schedule == "auto")
    return say("auto, chunks ", options.chunks, ", memory limit ",
               options.memory_limit ? to_string(*options.memory_limit) : "0", ", weight gradients ",
               to_string(options.weight_gradients));
  const Schedule training = ScheduleCache({.options = without_bytes(options), .ranks = ranks}).training();
  std::string text = say(to_string(weight_gradients_of(training)), ", stages on ranks");
  for (const Rank rank : training.rank_of_stage) text += say(" ", rank.value());
  return text;
}

}  // namespace

std::string tuning_key(const RankContext& context, const TunedWorld& world, Cell& network, const Loss& loss,
                       const PipelineOptions& options, const AutotuneOptions& how) {
  std::ostringstream key;
  const rank::BatchAxesOf axes = sample_axes(options);
  key << "penstock " << PENSTOCK_VERSION << (has_cpu_kernels() ? ", tuned kernels" : "")
      << (kernels::has_kernel(kernels::LinearKernel::no_pack) ? ", BLIS" : "") << "\n"
      << "libtorch " << TORCH_VERSION << " " << at::get_cpu_capability() << "\n"
      << "processor " << in_one_line(processor()) << ", " << std::thread::hardware_concurrency() << " available\n"
      << "world " << context.stages << " x " << context.replicas << " " << world.transport << ", "
      << ranks_on_host(*context.endpoint) << " on the first host, " << world.threads << " threads each\n"
      << "settings " << in_one_line(how.cache.settings) << "\n"
      << "schedule " << schedule_text(options, context.stages) << "\n"
      << "kernels " << (options.kernels == Kernels::tuned ? "tuned " : "fixed ")
      << in_one_line(options.kernel_selection) << "\n"
      << "loss " << in_one_line(loss.name) << "\n"
      << "inputs" << shapes_of(how.sample.list()) << ", samples along " << axes.inputs.text() << "\n"
      << "targets" << shapes_of(how.sample_targets.list()) << ", samples along " << axes.targets.text() << "\n";
  if (!how.layer_costs.empty()) key << "layer costs " << hash_digits(text_hash(how.layer_costs)) << "\n";
  if (!how.cluster.empty()) key << "cluster " << hash_digits(text_hash(how.cluster)) << "\n";
  PipelineOptions decided = options;
  decided.device = resolved_device(options.device);
  for (const auto& [name, value] : settings_text(decided, [](const Setting& setting) { return setting.changes_times; }))
    key << name << " " << value << "\n";
  for (const Node& node : trace_graph(network, options.inputs, trace_sample(options)).nodes)
    key << node_text(node, options) << "\n";
  return key.str();
}

}  // namespace penstock
