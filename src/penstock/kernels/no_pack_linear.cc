#include "penstock/kernels/no_pack_linear.h"

#include <blis.h>

namespace penstock::kernels {
namespace {

/// into = a b, or into += a b if `written`. The matrices may have any strides.
void multiply(const torch::Tensor& into, bool written, const torch::Tensor& a, const torch::Tensor& b) {
  float one = 1, old = written ? 1 : 0;
  bli_sgemm(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, into.size(0), into.size(1), a.size(1), &one, a.data_ptr<float>(),
            a.stride(0), a.stride(1), b.data_ptr<float>(), b.stride(0), b.stride(1), &old, into.data_ptr<float>(),
            into.stride(0), into.stride(1));
}

torch::Tensor as_rows(const torch::Tensor& tensor) { return tensor.reshape({-1, tensor.size(-1)}); }

/// `rows` [n, features] as [..., features], with the leading sizes of `like`.
torch::Tensor shaped(const torch::Tensor& rows, const torch::Tensor& like) {
  std::vector<std::int64_t> sizes = like.sizes().vec();
  sizes.back() = rows.size(1);
  return rows.view(sizes);
}

}  // namespace

bool has_no_pack_linear() { return true; }

torch::Tensor no_pack_linear(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
  const torch::Tensor rows = as_rows(x);
  const torch::Tensor y = torch::empty({weight.size(0), rows.size(0)}, x.options()).t();
  if (bias.defined()) y.copy_(bias.detach());
  multiply(y, /*written=*/bias.defined(), rows, weight.t());
  return shaped(y, x);
}

torch::Tensor no_pack_input_gradient(const torch::Tensor& dy, const torch::Tensor& weight) {
  const torch::Tensor rows = as_rows(dy);
  const torch::Tensor dx = torch::empty({weight.size(1), rows.size(0)}, dy.options()).t();
  multiply(dx, /*written=*/false, rows, weight);
  return shaped(dx, dy);
}

}  // namespace penstock::kernels
