#include "penstock/model/captured_numbers.h"

#include <utility>

#include <torch/torch.h>

#include "penstock/base/device_copy.h"
#include "penstock/base/error.h"

namespace penstock {
namespace {

constexpr std::int64_t block_size = 1024;

}  // namespace

void refuse_captured_draw(std::string_view call) {
  throw ConfigError(say("'", call, "' draws random numbers that a captured step would repeat in every step: take ",
                        "penstock::Dropout, or leave out capture_steps (--capture-steps)"));
}

template <class Number>
torch::Tensor CapturedNumbers::Blocks<Number>::add(std::int64_t count, Entry entry, c10::Device device) {
  require<InternalError>(count > 0 && count <= block_size, count, " numbers of a step do not fit into a block");
  if (used % block_size + count > block_size) used += block_size - used % block_size;
  if (used == block_size * static_cast<std::int64_t>(blocks.size()))
    blocks.push_back(
        torch::empty({block_size}, torch::TensorOptions(c10::CppTypeToScalarType<Number>::value).device(device)));
  entry.at = used;
  entries.push_back(std::move(entry));
  const torch::Tensor numbers = blocks.back().narrow(0, used % block_size, count);
  used += count;
  return numbers;
}

template <class Number>
void CapturedNumbers::Blocks<Number>::write(std::uint64_t step) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> on_host;
  for (const torch::Tensor& block : blocks) on_host.push_back(torch::zeros_like(block, c10::kCPU));
  for (const Entry& entry : entries)
    entry.compute(step, on_host[static_cast<std::size_t>(entry.at / block_size)].template mutable_data_ptr<Number>() +
                            entry.at % block_size);
  for (std::size_t i = 0; i < blocks.size(); ++i) copy_to_device(blocks[i], on_host[i]);
}

torch::Tensor CapturedNumbers::integers(std::int64_t count,
                                        std::function<void(std::uint64_t step, std::int64_t* numbers)> compute) {
  return integers_.add(count, {.compute = std::move(compute)}, device_);
}

torch::Tensor CapturedNumbers::real(std::function<double(std::uint64_t step)> compute) {
  const auto write = [compute = std::move(compute)](std::uint64_t step, double* number) { *number = compute(step); };
  return reals_.add(1, {.compute = write}, device_)[0];
}

void CapturedNumbers::write(std::uint64_t step) {
  integers_.write(step);
  reals_.write(step);
}

}  // namespace penstock
