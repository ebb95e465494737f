#include "penstock/schedule/weight_gradients.h"

namespace penstock {

const char* to_string(WeightGradients mode) {
  switch (mode) {
    case WeightGradients::stream: return "stream";
    case WeightGradients::automatic: return "auto";
    case WeightGradients::fused: return "fused";
    case WeightGradients::grouped: return "grouped";
  }
  return "";
}

std::optional<WeightGradients> weight_gradients_named(std::string_view name) {
  for (const auto mode :
       {WeightGradients::stream, WeightGradients::automatic, WeightGradients::fused, WeightGradients::grouped})
    if (name == to_string(mode)) return mode;
  return std::nullopt;
}

WeightGradients weight_gradients_of(const Schedule& schedule) {
  bool is_fused = false, is_whole = true;
  for (const Order& order : schedule.orders)
    for (const Instruction& i : order) {
      if (i.op() != Op::weight_grad) continue;
      is_fused = is_fused || i.is_fused();
      is_whole = is_whole && i.micro_batch_count() == schedule.micro_batches;
    }
  if (!is_fused) return WeightGradients::stream;
  return is_whole ? WeightGradients::fused : WeightGradients::grouped;
}

}  // namespace penstock
