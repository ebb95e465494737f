// GELU in its tanh form, fast: x s(2u) with s the logistic function and u = sqrt(2/pi) (x + 0.044715 x^3), which equals
// x (1 + tanh u) / 2 (Hendrycks and Gimpel 2016, section 2). One pass over memory each way, one exponential instead of
// a tanh.
#pragma once

#include <cstdint>

namespace penstock {

/// y[i] = gelu(x[i]). Relative error below 1e-6.
void gelu_forward(const float* x, float* y, std::int64_t count);

/// dx[i] = dy[i] gelu'(x[i]).
void gelu_backward(const float* x, const float* dy, float* dx, std::int64_t count);

}  // namespace penstock
