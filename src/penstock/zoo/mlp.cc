#include "penstock/zoo/mlp.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/model/dropout.h"

namespace penstock {
namespace {

constexpr std::int64_t most_layers = 10000;

}  // namespace

Mlp::Mlp(const MlpOptions& options) {
  std::int64_t width = options.inputs;
  for (std::size_t i = 0; i < options.hidden.size(); ++i) {
    const std::int64_t in = width, out = options.hidden[i];
    layers_.push_back(add(say("layer", i + 1), [in, out] { return torch::nn::Linear(in, out); }));
    layers_.push_back(add(say("relu", i + 1), [] { return torch::nn::ReLU(); }));
    if (options.dropout != 0)
      layers_.push_back(add(say("dropout", i + 1), [p = options.dropout] { return Dropout(p); }));
    width = out;
  }
  layers_.push_back(add(say("layer", options.hidden.size() + 1),
                        [in = width, out = options.classes] { return torch::nn::Linear(in, out); }));
}

Value Mlp::forward(Value x) {
  x = flatten(x, 1);
  for (const Layer& layer : layers_) x = layer(x);
  return x;
}

std::vector<std::int64_t> parse_widths(std::string_view text) {
  std::vector<std::int64_t> widths;
  for (const std::string_view item : separated(text, ',')) {
    const std::size_t times = item.find('x');
    const auto width = number_of<std::int64_t>(item.substr(0, times)).value_or(0);
    const auto count = times == item.npos ? 1 : number_of<std::int64_t>(item.substr(times + 1)).value_or(0);
    require<ConfigError>(width > 0 && count > 0 && count <= most_layers, "'", item, "' in '", text,
                         "' is not a layer width: write widths as 512,512 or 1024x8");
    widths.insert(widths.end(), static_cast<std::size_t>(count), width);
  }
  return widths;
}

}  // namespace penstock
