// GELU in its tanh form (Hendrycks and Gimpel 2016, section 2), x (1 + tanh u) / 2 with u = sqrt(2/pi) (x + 0.044715
// x^3), computed as the equal x s(2u) with the logistic function s: one pass over memory for each of forward and
// backward, and one exponential instead of a tanh. Any thread.
#pragma once

#include <cstdint>

#include <c10/util/BFloat16.h>

namespace penstock::kernels {

/// y[i] = gelu(x[i]). Relative error below 1e-6 before the result is rounded to bf16.
void gelu_forward(const float* x, float* y, std::int64_t count);
void gelu_forward(const c10::BFloat16* x, c10::BFloat16* y, std::int64_t count);

/// dx[i] = dy[i] gelu'(x[i]).
void gelu_backward(const float* x, const float* dy, float* dx, std::int64_t count);
void gelu_backward(const c10::BFloat16* x, const c10::BFloat16* dy, c10::BFloat16* dx, std::int64_t count);

}  // namespace penstock::kernels
