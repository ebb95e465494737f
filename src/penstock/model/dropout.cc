#include "penstock/model/dropout.h"

#include <ATen/core/PhiloxRNGEngine.h>
#include <torch/nn/functional/dropout.h>

#include "penstock/base/error.h"
#include "penstock/model/random_place.h"

namespace penstock {
namespace {

thread_local const RandomPlace* place_of_thread = nullptr;

/// FNV-1a over the call's name, the step and the seed: what the masks of a whole batch have in common.
std::uint64_t key_of(const RandomPlace& place) {
  std::uint64_t hash = 14695981039346656037ull;
  const auto mix = [&hash](std::uint64_t value) { hash = (hash ^ value) * 1099511628211ull; };
  for (const char letter : place.call) mix(static_cast<unsigned char>(letter));
  for (const std::uint64_t number : {place.step, place.seed})
    for (int shift = 0; shift < 64; shift += 8) mix(number >> shift & 0xff);
  return hash;
}

/// 1 / (1 - p) where an element stays, 0 where it goes: a row of Philox numbers for each sample.
torch::Tensor mask_like(const torch::Tensor& input, double p, const RandomPlace& place) {
  const std::int64_t samples = input.dim() == 0 ? 1 : input.size(0);
  const std::int64_t width = samples == 0 ? 0 : input.numel() / samples;
  torch::Tensor mask = torch::empty({samples, width}, torch::kFloat32);
  const std::uint64_t key = key_of(place);
  const auto goes_below = static_cast<std::uint64_t>(p * 4294967296.0);
  const auto scale = static_cast<float>(1 / (1 - p));
  float* element = mask.data_ptr<float>();
  for (std::int64_t row = 0; row < samples; ++row) {
    at::philox_engine draw(key, static_cast<std::uint64_t>(place.first_sample + row));
    for (std::int64_t column = 0; column < width; ++column) *element++ = draw() < goes_below ? 0.0f : scale;
  }
  return mask.view(input.sizes()).to(input.options());
}

}  // namespace

const RandomPlace* RandomPlace::current() { return place_of_thread; }

RandomPlaceGuard::RandomPlaceGuard(const RandomPlace& place) : before_(place_of_thread) { place_of_thread = &place; }
RandomPlaceGuard::~RandomPlaceGuard() { place_of_thread = before_; }

DropoutImpl::DropoutImpl(double p) : p_(p) {
  require<ConfigError>(p >= 0 && p < 1, "dropout with probability ", p, ": give one from 0 to below 1");
}

torch::Tensor DropoutImpl::forward(const torch::Tensor& input) {
  const RandomPlace* place = RandomPlace::current();
  if (!is_training() || p_ == 0) return input;
  if (!place) return torch::nn::functional::dropout(input, torch::nn::functional::DropoutFuncOptions().p(p_));
  return input * mask_like(input, p_, *place);
}

}  // namespace penstock
