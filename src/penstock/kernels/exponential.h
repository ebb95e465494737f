// An exponential that compilers vectorise, for loops of PENSTOCK_FOR_EACH_PROCESSOR.
#pragma once

#include <bit>
#include <cstdint>

#define PENSTOCK_INLINE inline __attribute__((always_inline))

namespace penstock::kernels {

/// e^x for |x| <= 87: 2^n e^r with |r| <= ln(2) / 2, and the series of e^r to its sixth power.
PENSTOCK_INLINE float exponential(float x) {
  constexpr float round = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const float n = (x * 1.44269504089F + round) - round;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float series = 1.0F / 720;
  series = series * r + 1.0F / 120;
  series = series * r + 1.0F / 24;
  series = series * r + 1.0F / 6;
  series = series * r + 0.5F;
  series = series * r + 1;
  series = series * r + 1;
  const auto exponent = static_cast<std::int32_t>(n);
  return series * std::bit_cast<float>((exponent + 127) << 23);
}

}  // namespace penstock::kernels
