#include "penstock/schedule/memory_limit.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/schedule/lower.h"
#include "penstock/schedule/weight_gradients.h"

namespace penstock {
namespace {

/// Sums of shares are rounded: 1.1 times 10 micro-batches permits 11, although the product may be slightly less.
constexpr double rounding = 1e-9;

constexpr std::string_view forms =
    ": pass a positive multiple of 1F1B's activations, such as 1.5, or bytes per rank with a unit, such as 512MiB";

int of_1f1b(const Schedule& schedule) { return std::min(schedule.micro_batches, schedule.rank_count()); }

/// What a step holds at its peak, per rank.
struct Peaks {
  std::vector<int> contexts;  // as Validation::peak_activations
  std::vector<double> bytes;  // with a limit in bytes
};

Peaks peaks_of(const Schedule& schedule, const MemoryLimit& limit, const StageCosts& costs) {
  Peaks peaks;
  if (is_in_bytes(limit)) peaks.bytes = peak_activation_bytes(schedule, costs);
  for (const LiveContexts& moments : live_contexts(schedule, /*weight_share=*/1)) {
    double most = 0;
    for (const std::vector<double>& live : moments)
      most = std::max(most, std::accumulate(live.begin(), live.end(), 0.0));
    peaks.contexts.push_back(schedule.is_forward_only() ? 0 : static_cast<int>(most));
  }
  return peaks;
}

/// Per rank, the activations of one micro-batch of its largest stage.
std::vector<double> largest_stages(const Schedule& schedule, const StageCosts& costs) {
  std::vector<double> largest(schedule.orders.size(), 0);
  for (int pipeline = 0; pipeline < schedule.pipeline_count(); ++pipeline)
    for (std::size_t s = 0; s < schedule.rank_of_stage.size(); ++s) {
      double& of_rank = largest[schedule.placement(pipeline)[s].index()];
      of_rank = std::max(of_rank, value_of_stage(costs.activation_bytes, s));
    }
  return largest;
}

/// The rank that needs the largest limit, in the unit of the limit.
struct FullestRank {
  std::size_t rank = 0;
  double limit = 0;
};

FullestRank fullest_rank(const Schedule& schedule, const MemoryLimit& limit, const Peaks& peaks) {
  const std::vector<int> chunks = schedule.chunks();
  FullestRank fullest;
  for (std::size_t rank = 0; rank < peaks.contexts.size(); ++rank) {
    const double needed = is_in_bytes(limit) ? peaks.bytes[rank]
                                             : static_cast<double>(peaks.contexts[rank]) /
                                                   (std::max(1, chunks[rank]) * of_1f1b(schedule));
    if (needed > fullest.limit) fullest = {rank, needed};
  }
  return fullest;
}

MemoryLimit needed(const FullestRank& fullest, const MemoryLimit& limit) {
  if (is_in_bytes(limit)) return BytesPerRank{static_cast<std::int64_t>(std::ceil(fullest.limit))};
  constexpr double digits = 1000;
  return TimesOf1F1B{std::ceil(fullest.limit * digits - 1e-6) / digits};
}

bool is_within(const Schedule& schedule, const MemoryLimit& limit, const StageCosts& costs, const Peaks& peaks) {
  const FullestRank fullest = fullest_rank(schedule, limit, peaks);
  if (const auto* in_bytes = std::get_if<BytesPerRank>(&limit))
    return fullest.limit <= static_cast<double>(in_bytes->bytes) * (1 + rounding);
  return peaks.contexts.empty() ||
         peaks.contexts[fullest.rank] <= activation_limit(schedule, limit, costs)[fullest.rank];
}

void require_within(const Schedule& schedule, const MemoryLimit& limit, const StageCosts& costs, const Peaks& peaks) {
  if (is_within(schedule, limit, costs, peaks)) return;
  const FullestRank fullest = fullest_rank(schedule, limit, peaks);
  const std::string way_out =
      say("set a limit of ", readable(needed(fullest, limit)), " or more, or take another schedule");
  if (is_in_bytes(limit))
    throw ConfigError(say("a memory limit of ", readable(limit), " per rank is less than the ",
                          readable(needed(fullest, limit)), " of activations that schedule '", schedule.name,
                          "' holds on rank ", fullest.rank, ": ", way_out));
  throw ConfigError(say("a memory limit of ", to_string(limit), " (times 1F1B's ", of_1f1b(schedule),
                        " micro-batches) lets rank ", fullest.rank, " hold ",
                        activation_limit(schedule, limit, costs)[fullest.rank], " live micro-batches",
                        schedule.chunks()[fullest.rank] > 1 ? " of its chunks" : "", ", but schedule '", schedule.name,
                        "' holds ", peaks.contexts[fullest.rank], " there: ", way_out));
}

bool exceeds_everywhere(const std::vector<double>& a, const std::vector<double>& b) {
  for (std::size_t k = 0; k < a.size(); ++k)
    if (a[k] < b[k]) return false;
  return a != b;
}

}  // namespace

MemoryLimit parse_memory_limit(std::string_view text) {
  if (const auto times = number_of<double>(text)) {
    require<ConfigError>(std::isfinite(*times) && *times > 0, "memory limit ", text, forms);
    return TimesOf1F1B{*times};
  }
  const std::optional<std::int64_t> bytes = parse_bytes(text);
  require<ConfigError>(bytes && *bytes > 0, "memory limit ", text, forms, "; the units are ", byte_unit_names);
  return BytesPerRank{*bytes};
}

std::string to_string(const MemoryLimit& limit) {
  if (const auto* in_bytes = std::get_if<BytesPerRank>(&limit)) return bytes_text(in_bytes->bytes);
  return say(std::get<TimesOf1F1B>(limit).times);
}

std::string readable(const MemoryLimit& limit) {
  constexpr std::int64_t mebibyte = 1 << 20;
  const auto* in_bytes = std::get_if<BytesPerRank>(&limit);
  if (!in_bytes || in_bytes->bytes < mebibyte || in_bytes->bytes % mebibyte == 0) return to_string(limit);
  return say(to_string(limit), " (", fixed(static_cast<double>(in_bytes->bytes) / mebibyte, 1), "MiB)");
}

void require_memory_limit(const MemoryLimit& limit, const StageCosts& costs) {
  if (const auto* multiple = std::get_if<TimesOf1F1B>(&limit)) {
    require<ConfigError>(std::isfinite(multiple->times) && multiple->times > 0, "memory limit ", multiple->times,
                         forms);
    return;
  }
  require<ConfigError>(std::get<BytesPerRank>(limit).bytes > 0, "memory limit ", std::get<BytesPerRank>(limit).bytes,
                       "B", forms);
  require<ConfigError>(!costs.activation_bytes.empty(), "a memory limit of ", to_string(limit),
                       ", but the bytes of a micro-batch's activations are not known: pass them per stage "
                       "(--activation-bytes, StageCosts::activation_bytes), or a limit without a unit, which is a "
                       "multiple of 1F1B's activations");
}

std::vector<double> peak_activation_bytes(const Schedule& schedule, const StageCosts& costs) {
  std::vector<double> peaks(schedule.orders.size(), 0);
  if (schedule.is_forward_only()) return peaks;
  std::vector<std::vector<double>> stages(schedule.orders.size());  // bytes, per rank
  for (int pipeline = 0; pipeline < schedule.pipeline_count(); ++pipeline)
    for (std::size_t s = 0; s < schedule.rank_of_stage.size(); ++s)
      stages[schedule.placement(pipeline)[s].index()].push_back(value_of_stage(costs.activation_bytes, s));
  const std::vector<LiveContexts> live = live_contexts(schedule, costs.weight_share);
  for (std::size_t rank = 0; rank < peaks.size(); ++rank)
    for (const std::vector<double>& moment : live[rank])
      peaks[rank] = std::max(peaks[rank], std::inner_product(moment.begin(), moment.end(), stages[rank].begin(), 0.0));
  return peaks;
}

std::vector<int> contexts_within(const Schedule& schedule, const StageCosts& costs, std::span<const double> bytes) {
  const std::vector<double> largest = largest_stages(schedule, costs);
  const std::vector<int> chunks = schedule.chunks();
  std::vector<int> contexts;
  for (std::size_t rank = 0; rank < largest.size(); ++rank) {
    const double all = static_cast<double>(schedule.micro_batches) * chunks[rank];
    const double fitting = largest[rank] > 0 ? std::floor(std::max(0.0, bytes[rank]) / largest[rank]) : all;
    contexts.push_back(static_cast<int>(std::min(fitting, all)));
  }
  return contexts;
}

std::vector<int> activation_limit(const Schedule& schedule, const MemoryLimit& limit, const StageCosts& costs) {
  require_memory_limit(limit, costs);
  if (const auto* in_bytes = std::get_if<BytesPerRank>(&limit))
    return contexts_within(schedule, costs,
                           std::vector<double>(schedule.orders.size(), static_cast<double>(in_bytes->bytes)));
  std::vector<int> contexts;
  for (const int chunks : schedule.chunks()) {
    const double permitted = std::get<TimesOf1F1B>(limit).times * chunks * of_1f1b(schedule) + rounding;
    const double all = static_cast<double>(schedule.micro_batches) * chunks;
    contexts.push_back(std::max(1, static_cast<int>(std::min(permitted, all))));
  }
  return contexts;
}

std::vector<int> fuse_limit(const Schedule& schedule, const MemoryLimit& limit, const StageCosts& costs) {
  std::vector<int> contexts = activation_limit(schedule, limit, costs);
  Peaks least{smallest_fuse_limit(strip(schedule)), {}};
  if (is_in_bytes(limit)) {
    least.bytes = largest_stages(schedule, costs);
    for (std::size_t rank = 0; rank < least.bytes.size(); ++rank) least.bytes[rank] *= least.contexts[rank];
  }
  require_within(schedule, limit, costs, least);
  return contexts;
}

bool is_within_limit(const Schedule& schedule, const MemoryLimit& limit, const StageCosts& costs) {
  require_memory_limit(limit, costs);
  return is_within(schedule, limit, costs, peaks_of(schedule, limit, costs));
}

MemoryLimit needed_memory_limit(const Schedule& schedule, const MemoryLimit& limit, const StageCosts& costs) {
  require_memory_limit(limit, costs);
  return needed(fullest_rank(schedule, limit, peaks_of(schedule, limit, costs)), limit);
}

void require_within_limit(const Schedule& schedule, const MemoryLimit& limit, const StageCosts& costs) {
  require_memory_limit(limit, costs);
  require_within(schedule, limit, costs, peaks_of(schedule, limit, costs));
}

std::vector<LiveContexts> live_contexts(const Schedule& schedule, double weight_share) {
  struct Held {
    int before_i = 0;
    int before_w = 0;
  };
  std::vector<std::size_t> chunks(schedule.orders.size(), 0);  // per rank
  std::vector<std::size_t> chunk;  // by pipeline, then stage: the number among those of its rank
  for (int pipeline = 0; pipeline < schedule.pipeline_count(); ++pipeline)
    for (const Rank rank : schedule.placement(pipeline)) chunk.push_back(chunks[rank.index()]++);
  const auto chunk_of = [&](const Instruction& instruction) {
    const int pipeline = schedule.pipeline_of.empty() ? 0 : schedule.pipeline_of[instruction.micro_batch().index()];
    return chunk[static_cast<std::size_t>(pipeline) * schedule.rank_of_stage.size() + instruction.stage().index()];
  };
  std::vector<LiveContexts> live_of_rank;
  for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank) {
    std::vector<Held> held(chunks[rank]);
    std::vector<double> live(chunks[rank], 0);
    std::set<std::vector<double>> moments;
    for (const Instruction& instruction : schedule.orders[rank]) {
      if (!is_compute(instruction.op())) continue;
      const std::size_t own = chunk_of(instruction);
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
