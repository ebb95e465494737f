#include "penstock/model/captured_numbers.h"

#include <utility>

#include <torch/torch.h>

#include "penstock/base/device_copy.h"
#include "penstock/base/error.h"

namespace penstock {

void refuse_captured_draw(std::string_view call) {
  throw ConfigError(say("'", call, "' draws random numbers that a captured step would repeat in every step: take ",
                        "penstock::Dropout, or leave out capture_steps (--capture-steps)"));
}

template <class Number>
void CapturedNumbers::Block<Number>::reserve(c10::Device device, std::int64_t count) {
  memory = torch::empty({count}, torch::TensorOptions(c10::CppTypeToScalarType<Number>::value).device(device));
  entries.clear();
  used = 0;
}

template <class Number>
torch::Tensor CapturedNumbers::Block<Number>::add(std::int64_t count,
                                                  std::function<void(std::uint64_t step, Number* numbers)> compute) {
  require<Failure>(memory.defined() && used + count <= memory.numel(), "a captured step draws more numbers than the ",
                   "step before it");
  entries.push_back({used, std::move(compute)});
  used += count;
  return memory.narrow(0, entries.back().first, count);
}

template <class Number>
void CapturedNumbers::Block<Number>::write(std::uint64_t step) const {
  if (entries.empty()) return;
  const torch::NoGradGuard no_grad;
  const torch::Tensor on_host = torch::zeros_like(memory, c10::kCPU);
  for (const Entry& entry : entries) entry.compute(step, on_host.template mutable_data_ptr<Number>() + entry.first);
  copy_to_device(memory, on_host);
}

void CapturedNumbers::reserve(c10::Device device, std::int64_t integers, std::int64_t reals) {
  integers_.reserve(device, integers);
  reals_.reserve(device, reals);
}

torch::Tensor CapturedNumbers::integers(std::int64_t count,
                                        std::function<void(std::uint64_t step, std::int64_t* numbers)> compute) {
  return integers_.add(count, std::move(compute));
}

torch::Tensor CapturedNumbers::real(std::function<double(std::uint64_t step)> compute) {
  return reals_.add(1,
                    [compute = std::move(compute)](std::uint64_t step, double* number) { *number = compute(step); })[0];
}

void CapturedNumbers::write(std::uint64_t step) {
  integers_.write(step);
  reals_.write(step);
}

}  // namespace penstock
