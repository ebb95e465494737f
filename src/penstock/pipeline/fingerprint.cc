#include "penstock/pipeline/fingerprint.h"

#include <algorithm>
#include <functional>

#include <torch/version.h>

#include "penstock/base/error.h"
#include "penstock/kernels/kernel_selection.h"
#include "penstock/pipeline/partition_network.h"
#include "penstock/schedule/schedule.h"

namespace penstock {
namespace {

template <class T>
std::string text_of_setting(const T& value) {
  return say(value);
}
std::string text_of_setting(bool value) { return value ? "yes" : "no"; }
std::string text_of_setting(const std::string& text) {
  std::string line = text;
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}
std::string text_of_setting(Reduction reduction) { return to_string(reduction); }
std::string text_of_setting(Precision precision) { return to_string(precision); }
std::string text_of_setting(WeightGradients mode) { return to_string(mode); }
std::string text_of_setting(const MemoryLimit& limit) { return to_string(limit); }
std::string text_of_setting(const std::vector<std::int64_t>& shape) { return say(at::IntArrayRef(shape)); }
template <class T>
std::string text_of_setting(const std::optional<T>& value) {
  return value ? text_of_setting(*value) : "none";
}

}  // namespace

Fingerprint settings_text(const PipelineOptions& options, const std::function<bool(const Setting&)>& which) {
  Fingerprint settings;
  for_each_setting(options, [&](const Setting& setting, const auto& value) {
    if (which(setting)) settings.emplace_back(setting.name, text_of_setting(value));
  });
  return settings;
}

Fingerprint fingerprint_of(const PipelineOptions& options, const PipelineParts& parts) {
  Fingerprint all = {
      {"penstock", PENSTOCK_VERSION},
      {"LibTorch", TORCH_VERSION},
      {"stages", say(parts.world.stages())},
      {"replicas", say(parts.world.replicas())},
      {"threads per rank", say(parts.world.threads())},
      {"instructions", say(std::hash<std::string>{}(write_schedule(parts.training)))},
      {"network", outline(parts.staged)},
      {"loss", parts.loss.name},
      {"layouts", say(parts.axes.inputs.text(), "; ", parts.axes.targets.text(), "; ", parts.axes.outputs.text())},
      {"kernels", kernels::kernels_from(options.kernels, options.kernel_selection)->fingerprint()}};
  const Fingerprint settings = settings_text(options, [](const Setting&) { return true; });
  all.insert(all.end(), settings.begin(), settings.end());
  return all;
}

}  // namespace penstock
