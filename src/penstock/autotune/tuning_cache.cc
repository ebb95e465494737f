#include "penstock/autotune/tuning_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include <ATen/Version.h>
#include <torch/nn/module.h>
#include <torch/version.h>

#include "penstock/autotune/measured_options.h"
#include "penstock/base/error.h"
#include "penstock/base/hash.h"
#include "penstock/base/log.h"
#include "penstock/kernels/cpu_kernels.h"
#include "penstock/model/graph.h"
#include "penstock/pipeline/fingerprint.h"
#include "penstock/pipeline/partition_network.h"
#include "penstock/pipeline/schedule_cache.h"
#include "penstock/rank/batch.h"
#include "penstock/schedule/schedule.h"
#include "penstock/world/device.h"
#include "penstock/world/host_memory.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// A name that no other process, host or thread chooses for its temporary file.
std::string temporary_name(const std::string& path) {
  std::random_device random;
  return say(path, ".", ::getpid(), "-", random(), ".new");
}

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
std::string layer_text(const Node& node, std::uint64_t seed) {
  const BuiltLayer built = build_layer(node.layer->factory, {.seed = seed, .layer = node.layer_path});
  std::ostringstream text;
  built.module->pretty_print(text);
  for (const auto& parameter : built.module->named_parameters())
    text << " " << parameter.key() << " " << shape_of(parameter.value());
  for (const auto& buffer : built.module->named_buffers())
    text << " " << buffer.key() << " " << shape_of(buffer.value());
  for (const auto& [name, owner] : node.ties) text << " " << name << " = " << owner.full_name();
  return in_one_line(text.str());
}

std::string node_text(const Node& node, const PipelineOptions& options) {
  std::ostringstream text;
  text << "layer " << in_one_line(node.name) << " of";
  for (const ValueRef& input : node.inputs) text << " " << input.node << "." << input.output;
  if (node.stage) text << ", stage " << *node.stage;
  if (node.recompute.value_or(options.recompute)) text << ", recomputed";
  text << ": " << (node.is_layer() ? layer_text(node, options.seed) : "function");
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

std::string TuningCache::file_of(const std::string& key) const {
  return (fs::path(folder) / (hash_digits(text_hash(key)) + ".json")).string();
}

std::optional<TuningRecord> TuningCache::find(const std::string& key) const {
  if (measure_again) return std::nullopt;
  const std::string path = file_of(key);
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  try {
    TuningRecord record = read_tuning_record(text.str());
    if (record.key == key) return record;
    warn(say(path, " belongs to another job: measuring, and replacing it"));
  } catch (const Misuse& error) {
    warn(say(path, " cannot be used (", error.what(), "): measuring, and replacing it"));
  }
  return std::nullopt;
}

void TuningCache::store(const TuningRecord& record) const {
  const std::string path = file_of(record.key), temporary = temporary_name(path);
  std::error_code ignored;
  try {
    fs::create_directories(folder);
    std::ofstream file(temporary, std::ios::binary);
    file << write_tuning_record(record);
    file.close();
    require<DataError>(file.good(), "it could not be written to its end");
    fs::rename(temporary, path);
  } catch (const std::exception& error) {
    fs::remove(temporary, ignored);
    warn(say("measurements are not kept in ", path, ": ", error.what()));
  }
}

std::string default_tuning_folder() {
  const auto folder_in = [](const char* variable) -> std::string {
    const char* value = std::getenv(variable);
    return value && fs::path(value).is_absolute() ? value : "";
  };
  if (const std::string cache = folder_in("XDG_CACHE_HOME"); !cache.empty())
    return (fs::path(cache) / "penstock").string();
  if (const std::string home = folder_in("HOME"); !home.empty()) return (fs::path(home) / ".cache/penstock").string();
  return "";
}

std::string tuning_key(const RankContext& context, const TunedJob& job, Cell& network, const Loss& loss,
                       const PipelineOptions& options) {
  std::ostringstream key;
  const BatchAxesOf axes{{"sample", options.batch_dims.inputs}, {"sample_targets", options.batch_dims.targets}, {}};
  key << "penstock " << PENSTOCK_VERSION << (has_cpu_kernels() ? ", tuned kernels" : "")
      << (has_kernel(LinearKernel::no_pack) ? ", BLIS" : "") << "\n"
      << "libtorch " << TORCH_VERSION << " " << at::get_cpu_capability() << "\n"
      << "processor " << in_one_line(processor()) << ", " << std::thread::hardware_concurrency() << " available\n"
      << "world " << context.stages << " x " << context.replicas << " " << job.transport << ", "
      << ranks_on_host(*context.endpoint) << " on the first host, " << job.threads << " threads each\n"
      << "settings " << in_one_line(job.settings) << "\n"
      << "schedule " << schedule_text(options, context.stages) << "\n"
      << "kernels " << (options.kernels == Kernels::tuned ? "tuned " : "fixed ")
      << in_one_line(options.kernel_selection) << "\n"
      << "loss " << in_one_line(loss.name) << "\n"
      << "inputs" << shapes_of(options.sample) << ", samples along " << axes.inputs.text() << "\n"
      << "targets" << shapes_of(options.sample_targets.list()) << ", samples along " << axes.targets.text() << "\n";
  PipelineOptions decided = options;
  decided.device = resolved_device(options.device);
  for (const auto& [name, value] : settings_text(decided, [](const Setting& setting) { return setting.changes_times; }))
    key << name << " " << value << "\n";
  for (const Node& node : trace_graph(network, options.inputs, trace_sample(options)).nodes)
    key << node_text(node, options) << "\n";
  return key.str();
}

}  // namespace penstock
