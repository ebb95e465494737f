#include "penstock/world/device.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include <torch/cuda.h>
#include <torch/version.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

/// `text` as a number; -1 where it is none.
int number_in(std::string_view text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : -1;
}

}  // namespace

c10::Device device_of(const std::string& wanted, int local_rank) {
  if (wanted == "cpu") return c10::kCPU;
  const int there = static_cast<int>(torch::cuda::device_count());
  if (wanted == "auto" && there == 0) return c10::kCPU;
  const bool any = wanted == "cuda" || wanted == "auto";
  const int number = any ? 0 : wanted.starts_with("cuda:") ? number_in(std::string_view(wanted).substr(5)) : -1;
  require<ConfigError>(number >= 0, "device '", wanted, "' is none of cpu, cuda, cuda:0, cuda:1, ... and auto");
  require<ConfigError>(number < there, "device '", wanted, "' is asked for, but LibTorch ", TORCH_VERSION, " sees ",
                       there, there == 1 ? " GPU" : " GPUs", " here: take the device cpu");
  const int index = any ? local_rank % there : number;
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

std::string resolved_device(const std::string& wanted) {
  if (wanted != "auto") return wanted;
  return torch::cuda::device_count() > 0 ? "cuda" : "cpu";
}

int local_rank_of(int world_rank) {
  for (const char* variable : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_RANK", "SLURM_LOCALID"})
    if (const char* value = std::getenv(variable))
      if (const int number = number_in(value); number >= 0) return number;
  return world_rank;
}

}  // namespace penstock
