#include "penstock/schedule/live_contexts.h"

#include <algorithm>
#include <set>

namespace penstock {
namespace {

bool exceeds_everywhere(const std::vector<double>& a, const std::vector<double>& b) {
  for (std::size_t k = 0; k < a.size(); ++k)
    if (a[k] < b[k]) return false;
  return a != b;
}

/// The number of each stage among the stages of its rank. Sets `chunks` to the number of stages per rank.
std::vector<std::size_t> chunk_of_stage(const Schedule& schedule, std::vector<std::size_t>& chunks) {
  std::vector<std::size_t> chunk;
  chunks.assign(schedule.orders.size(), 0);
  for (const Rank rank : schedule.rank_of_stage) chunk.push_back(chunks[rank.index()]++);
  return chunk;
}

}  // namespace

std::vector<LiveContexts> live_contexts(const Schedule& schedule, double weight_share) {
  struct Held {
    int before_i = 0;
    int before_w = 0;
  };
  std::vector<std::size_t> chunks;
  const std::vector<std::size_t> chunk = chunk_of_stage(schedule, chunks);
  std::vector<LiveContexts> live_of_rank;
  for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank) {
    std::vector<Held> held(chunks[rank]);
    std::vector<double> live(chunks[rank], 0);
    std::set<std::vector<double>> moments;
    for (const Instruction& instruction : schedule.orders[rank]) {
      if (!is_compute(instruction.op())) continue;
      const std::size_t own = chunk[instruction.stage().index()];
      const int contexts = instruction.micro_batch_count();
      if (instruction.op() == Op::forward) ++held[own].before_i;
      if (instruction.op() == Op::backward || instruction.op() == Op::input_grad) --held[own].before_i;
      if (instruction.op() == Op::input_grad) ++held[own].before_w;
      if (instruction.op() == Op::weight_grad) held[own].before_w -= contexts;
      live[own] = held[own].before_i + weight_share * held[own].before_w;
      if (instruction.op() == Op::forward) moments.insert(live);
    }
    LiveContexts& most = live_of_rank.emplace_back();
    // In descending order: a point that exceeds another one everywhere comes before it.
    for (auto moment = moments.rbegin(); moment != moments.rend(); ++moment)
      if (std::none_of(most.begin(), most.end(), [&](const auto& peak) { return exceeds_everywhere(peak, *moment); }))
        most.push_back(*moment);
  }
  return live_of_rank;
}

}  // namespace penstock
