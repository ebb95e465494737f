#include "penstock/zoo/mlp.h"

#include <charconv>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include "penstock/base/error.h"
#include "penstock/model/dropout.h"

namespace penstock {
namespace {

constexpr std::int64_t most_layers = 10000;

/// `digits` as a positive number; -1 if it is anything else.
std::int64_t positive(std::string_view digits) {
  std::int64_t number = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size() && number > 0 ? number : -1;
}

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
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const std::size_t times = item.find('x');
    const std::int64_t width = positive(item.substr(0, times));
    const std::int64_t count = times == std::string_view::npos ? 1 : positive(item.substr(times + 1));
    require<ConfigError>(width > 0 && count > 0 && count <= most_layers, "'", item, "' in '", text,
                         "' is not a layer width: write widths as 512,512 or 1024x8");
    widths.insert(widths.end(), static_cast<std::size_t>(count), width);
    if (comma == std::string_view::npos) return widths;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace penstock
