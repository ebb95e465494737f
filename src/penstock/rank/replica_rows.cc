#include "penstock/rank/replica_rows.h"

#include <algorithm>
#include <numeric>

#include "penstock/base/hash.h"

namespace penstock::rank {

torch::Tensor ReplicaRows::in(const torch::Tensor& whole) const {
  if (!whole.defined() || is_empty()) return {};
  return is_whole() ? whole : whole.detach().narrow(0, rows.begin, rows.size());
}

ReplicaRows rows_of(const std::string& name, const torch::Tensor& parameter, const ReplicaOf& part) {
  constexpr std::int64_t multiple = 64;
  const std::int64_t all = parameter.dim() == 0 ? 1 : parameter.size(0);
  const bool is_cut_by_rows = parameter.dim() > 0 && parameter.numel() > 0 &&
                              parameter.is_non_overlapping_and_dense() &&
                              parameter.stride(0) * all == parameter.numel();
  const std::int64_t unit =
      is_cut_by_rows ? multiple / std::gcd(multiple, parameter.stride(0)) : std::max<std::int64_t>(1, all);
  const auto turn = static_cast<std::int64_t>(text_hash(name) % static_cast<std::uint64_t>(part.of));
  const RowRange units =
      split((all + unit - 1) / unit, {.index = (part.replica.value() + turn) % part.of, .of = part.of});
  return {{std::min(all, units.begin * unit), std::min(all, units.end * unit)}, all};
}

torch::Tensor rows_to_send(const torch::Tensor& rows) { return rows.defined() && !rows.is_cpu() ? rows.clone() : rows; }

}  // namespace penstock::rank
