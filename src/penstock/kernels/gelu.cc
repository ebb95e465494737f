#include "penstock/kernels/gelu.h"

#include <algorithm>
#include <cstdint>

#include "penstock/kernels/exponential.h"
#include "penstock/kernels/for_each_processor.h"

namespace penstock::kernels {
namespace {

constexpr float slope = 1.5957691216F;  // 2 sqrt(2 / pi)
constexpr float cubic = 0.044715F * slope;

/// 1 / (1 + e^-z).
PENSTOCK_INLINE float logistic(float z) {
  constexpr float limit = 87;
  float x = -z;
  x = x < limit ? x : limit;
  x = x > -limit ? x : -limit;
  return 1 / (1 + exponential(x));
}

PENSTOCK_INLINE void forward(const float* x, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float v = x[i];
    y[i] = v * logistic(v * (slope + cubic * v * v));
  }
}

PENSTOCK_INLINE void backward(const float* x, const float* dy, float* dx, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float v = x[i], square = v * v;
    const float s = logistic(v * (slope + cubic * square));
    dx[i] = dy[i] * (s + v * s * (1 - s) * (slope + 3 * cubic * square));
  }
}

/// Numbers of one part, which the first-level cache holds. Parts are converted in loops of their own, because a loop
/// over both types is vectorised with few numbers at a time.
constexpr std::int64_t part = 512;

template <typename From, typename To>
PENSTOCK_INLINE void convert(const From* from, To* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i];
}

}  // namespace

PENSTOCK_FOR_EACH_PROCESSOR void gelu_forward(const float* x, float* y, std::int64_t count) { forward(x, y, count); }

PENSTOCK_FOR_EACH_PROCESSOR void gelu_forward(const c10::BFloat16* x, c10::BFloat16* y, std::int64_t count) {
  float in[part], out[part];
  for (std::int64_t begin = 0; begin < count; begin += part) {
    const std::int64_t size = std::min(part, count - begin);
    convert(x + begin, in, size);
    forward(in, out, size);
    convert(out, y + begin, size);
  }
}

PENSTOCK_FOR_EACH_PROCESSOR void gelu_backward(const float* x, const float* dy, float* dx, std::int64_t count) {
  backward(x, dy, dx, count);
}

PENSTOCK_FOR_EACH_PROCESSOR void gelu_backward(const c10::BFloat16* x, const c10::BFloat16* dy, c10::BFloat16* dx,
                                               std::int64_t count) {
  float in[part], gradient[part], out[part];
  for (std::int64_t begin = 0; begin < count; begin += part) {
    const std::int64_t size = std::min(part, count - begin);
    convert(x + begin, in, size);
    convert(dy + begin, gradient, size);
    backward(in, gradient, out, size);
    convert(out, dx + begin, size);
  }
}

}  // namespace penstock::kernels
