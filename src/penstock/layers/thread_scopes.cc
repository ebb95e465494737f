#include "penstock/layers/thread_scopes.h"

#include <memory>

#include <ATen/autocast_mode.h>
#include <c10/core/Allocator.h>

#include "penstock/base/error.h"

namespace penstock::layers {
namespace {

void set(const Autocast& wanted) {
  at::autocast::set_autocast_enabled(wanted.device, wanted.enabled);
  at::autocast::set_autocast_dtype(wanted.device, wanted.type);
}

struct Unseen : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, std::int64_t, std::size_t, std::size_t, c10::Device) override {}
  bool memoryProfilingEnabled() const override { return false; }
};

}  // namespace

Autocast Autocast::current(c10::DeviceType device) {
  return {at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device), device};
}

Autocast autocast_for(Precision precision, c10::DeviceType device) {
  return {.enabled = precision != Precision::fp32,
          .type = precision == Precision::fp16 ? c10::ScalarType::Half : c10::ScalarType::BFloat16,
          .device = device};
}

void require_precision(Precision precision, c10::DeviceType device) {
  if (precision == Precision::fp32) return;
  require<ConfigError>(at::autocast::is_autocast_available(device), "LibTorch has no mixed precision on ",
                       c10::DeviceTypeName(device, /*lower_case=*/true), ": pass --precision fp32, or another device");
  const bool has_fp16 = device == c10::DeviceType::CPU || device == c10::DeviceType::CUDA;
  require<ConfigError>(precision != Precision::fp16 || has_fp16, "fp16 is tested only on cpu and cuda, and this is ",
                       c10::DeviceTypeName(device, /*lower_case=*/true), ": pass --precision bf16 or fp32");
}

bool is_reduced(c10::ScalarType type) { return type == c10::ScalarType::BFloat16 || type == c10::ScalarType::Half; }

AutocastGuard::AutocastGuard(const Autocast& wanted)
    : before_(Autocast::current(wanted.device)), cached_before_(at::autocast::is_autocast_cache_enabled()) {
  set(wanted);
  if (wanted.enabled) at::autocast::set_autocast_cache_enabled(false);
}

AutocastGuard::~AutocastGuard() {
  set(before_);
  at::autocast::set_autocast_cache_enabled(cached_before_);
}

Uncounted::Uncounted() : guard_(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Unseen>()) {}

}  // namespace penstock::layers
