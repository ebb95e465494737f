#include "penstock/hf/rotary.h"

#include <cmath>
#include <numbers>

#include <torch/autograd.h>

#include "penstock/base/error.h"
#include "penstock/layers/thread_scopes.h"

namespace penstock::hf {
namespace {

/// Long wavelengths are divided by `factor`, short ones are kept, and those between are interpolated.
torch::Tensor llama3_frequencies(const torch::Tensor& plain, const ConfigFile& file, double original_context) {
  const double factor = file.number("factor"), low = file.number("low_freq_factor");
  const double high = file.number("high_freq_factor");
  require<ConfigError>(low < high, file.place(), " has 'low_freq_factor' = ", low, " and 'high_freq_factor' = ", high,
                       ": the first must be less");
  const torch::Tensor wavelengths = 2 * std::numbers::pi / plain;
  const torch::Tensor scaled = torch::where(wavelengths > original_context / low, plain / factor, plain);
  const torch::Tensor share = (original_context / wavelengths - low) / (high - low);
  const torch::Tensor between = (1 - share) * scaled / factor + share * scaled;
  const auto is_between = (wavelengths >= original_context / high) & (wavelengths <= original_context / low);
  return torch::where(is_between, between, scaled);
}

/// Yarn: pairs that turn often are kept, those that turn rarely are divided by `factor`, with a ramp between.
RotaryOptions yarn(const torch::Tensor& powers, const ConfigFile& file, double theta, double original_context) {
  const double factor = file.number("factor");
  const auto size = static_cast<double>(2 * powers.size(0));
  const auto pair_with = [&](double turns) {
    return size * std::log(original_context / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = pair_with(file.number("beta_fast", 32)), high = pair_with(file.number("beta_slow", 1));
  if (file.flag("truncate", true)) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, size - 1);
  if (low == high) high += 0.001;
  const torch::Tensor pairs = torch::arange(powers.size(0), torch::kFloat32);
  const torch::Tensor kept = 1 - ((pairs - low) / (high - low)).clamp(0, 1);
  const auto magnitude = [&](double weight) { return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1; };
  const double numerator = file.number("mscale", 0), denominator = file.number("mscale_all_dim", 0);
  const double scale =
      numerator != 0 && denominator != 0 ? magnitude(numerator) / magnitude(denominator) : magnitude(1);
  return {(1 / (factor * powers)) * (1 - kept) + (1 / powers) * kept, file.number("attention_factor", scale)};
}

/// One half of each pair is turned into the other: y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin.
torch::Tensor turned(const torch::Tensor& x, const torch::Tensor& cosines, const torch::Tensor& sines) {
  const std::int64_t half = cosines.size(-1), size = x.size(-1);
  torch::Tensor y = torch::empty(x.sizes(), x.options());
  const auto part = [&](const torch::Tensor& whole, std::int64_t which) {
    return whole.narrow(-1, which * half, half);
  };
  torch::Tensor first = part(y, 0), second = part(y, 1);
  const torch::Tensor x1 = part(x, 0), x2 = part(x, 1);
  at::mul_out(first, x1, cosines).addcmul_(x2, sines, -1);
  at::mul_out(second, x2, cosines).addcmul_(x1, sines);
  if (2 * half < size) y.narrow(-1, 2 * half, size - 2 * half).copy_(x.narrow(-1, 2 * half, size - 2 * half));
  return y;
}

/// As one node that keeps neither x nor a part of it for its backward pass.
struct Rotation : torch::autograd::Function<Rotation> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& cosines, const torch::Tensor& sines) {
    context->save_for_backward({cosines, sines});
    if (x.scalar_type() == torch::kFloat32) return turned(x, cosines, sines);
    return turned(x.to(torch::kFloat32), cosines, sines).to(x.scalar_type());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor& dy = gradients.front();
    if (!dy.defined()) return {torch::Tensor(), torch::Tensor(), torch::Tensor()};
    return {turned(dy.to(torch::kFloat32), saved[0], -saved[1]).to(dy.scalar_type()), torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

RotaryOptions read_rotary(const ConfigFile& file, const RotaryReading& reading) {
  const bool is_new = file.has("rope_parameters");
  ConfigFile options = file.part(is_new ? "rope_parameters" : reading.is_scaled ? "rope_scaling" : "");
  if (is_new && !reading.kind.empty()) options = options.part(reading.kind.c_str());
  require<ConfigError>(reading.size >= 2 && reading.size % 2 == 0, file.place(), " turns ", reading.size,
                       " values of a head by their position: the number must be even");
  const double theta = options.number("rope_theta", file.number(reading.theta_key, reading.default_theta));
  const std::string type = options.text({"rope_type", "type"}, "default");
  const double original_context = options.number(
      "original_max_position_embeddings",
      file.number("original_max_position_embeddings", static_cast<double>(file.size("max_position_embeddings"))));
  const torch::Tensor exponents = torch::arange(0, reading.size, 2, torch::kFloat32) / reading.size;
  const torch::Tensor powers = torch::pow(theta, exponents), plain = 1 / powers;
  if (type == "default") return {plain};
  if (type == "linear") return {plain / options.number("factor")};
  if (type == "llama3") return {llama3_frequencies(plain, options, original_context)};
  if (type == "yarn") return yarn(powers, options, theta, original_context);
  throw ConfigError(say(options.place(), " has the rope type '", type,
                        "', which is not supported: use default, linear, llama3 or yarn"));
}

Rotary::Turns Rotary::until(std::int64_t end) const {
  const std::lock_guard lock(mutex_);
  const std::int64_t known = known_.cosines.defined() ? known_.cosines.size(0) : 0;
  if (known < end) {
    const torch::NoGradGuard no_grad;
    const layers::Uncounted of_no_micro_batch;
    const torch::Tensor positions = torch::arange(std::max<std::int64_t>(2 * known, end), torch::kFloat32);
    const torch::Tensor angles = positions.unsqueeze(1) * options_.frequencies;
    known_ = {angles.cos() * options_.scale, angles.sin() * options_.scale};
  }
  return known_;
}

Rotary::Turns Rotary::consecutive(std::int64_t begin, std::int64_t length) const {
  const Turns all = until(begin + length);
  return {all.cosines.narrow(0, begin, length), all.sines.narrow(0, begin, length)};
}

Rotary::Turns Rotary::at(const torch::Tensor& positions) const {
  const Turns all = until(positions.numel() == 0 ? 0 : positions.max().item<std::int64_t>() + 1);
  return {all.cosines.index_select(0, positions), all.sines.index_select(0, positions)};
}

torch::Tensor rotate(const torch::Tensor& x, const Rotary::Turns& turns) {
  // [T, r / 2] for all rows, or [n * T, r / 2].
  const std::int64_t rows = turns.cosines.size(0) == x.size(1) ? 1 : x.size(0);
  const auto shaped = [&](const torch::Tensor& table) {
    return table.view({rows, table.size(0) / rows, 1, table.size(1)}).to(x.device());
  };
  return Rotation::apply(x, shaped(turns.cosines), shaped(turns.sines));
}

}  // namespace penstock::hf
