#include "penstock/plan/partition_search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>

namespace penstock {
namespace {

constexpr std::size_t most_waves = 4;  // a state is packed into 64 bits
constexpr int most_packed_layers = 65535;
constexpr double cost_rounding = 1e-9;
constexpr double unreachable = std::numeric_limits<double>::infinity();

/// The stages of each rank, ascending.
std::vector<std::vector<std::size_t>> stages_by_rank(const std::vector<Rank>& rank_of_stage) {
  std::vector<std::vector<std::size_t>> stages;
  for (std::size_t s = 0; s < rank_of_stage.size(); ++s) {
    if (rank_of_stage[s].index() >= stages.size()) stages.resize(rank_of_stage[s].index() + 1);
    stages[rank_of_stage[s].index()].push_back(s);
  }
  return stages;
}

/// The cost of each rank in a complete partition.
std::vector<double> costs_of(const PartitionProblem& problem, const Stages& stages) {
  std::vector<double> costs;
  const auto of_rank = stages_by_rank(problem.rank_of_stage);
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
    std::vector<LayerRange> own;
    for (const std::size_t s : of_rank[rank]) own.push_back(stages[s]);
    costs.push_back(problem.cost(Rank(static_cast<std::int32_t>(rank)), own));
  }
  return costs;
}

/// Moves single layers between neighbouring stages while the cost of the most expensive rank, or else the sum of
/// squared costs, decreases.
FoundPartition improved(const PartitionProblem& problem, Stages stages) {
  struct Grade {
    double most = 0;
    double squares = 0;
    bool operator<(const Grade& other) const {
      return most < other.most || (most == other.most && squares < other.squares);
    }
  };
  const auto grade_of = [&](const Stages& partition) {
    Grade grade;
    for (const double cost : costs_of(problem, partition)) {
      grade.most = std::max(grade.most, cost);
      grade.squares += cost * cost;
    }
    return grade;
  };
  Grade grade = grade_of(stages);
  for (bool better = true; better;) {
    better = false;
    for (std::size_t s = 1; s < stages.size(); ++s)
      for (const int by : {-1, 1}) {
        const int boundary = stages[s].begin + by;
        if (boundary <= stages[s - 1].begin || boundary >= stages[s].end) continue;
        Stages moved = stages;
        moved[s - 1].end = moved[s].begin = boundary;
        const Grade of_moved = grade_of(moved);
        if (!(of_moved < grade)) continue;
        stages = std::move(moved);
        grade = of_moved;
        better = true;
      }
  }
  return {std::move(stages), grade.most, false};
}

/// Stages with nearly equal shares.
Stages proportional(const PartitionProblem& problem) {
  const auto count = static_cast<int>(problem.rank_of_stage.size());
  const double whole = problem.share({0, problem.layers});
  Stages stages;
  int begin = 0;
  for (int s = 0; s < count; ++s) {
    const int latest = problem.layers - (count - 1 - s);
    int end = begin + 1;
    while (end < latest && problem.share({0, end}) < whole * (s + 1) / count) ++end;
    if (s == count - 1) end = problem.layers;
    stages.push_back({begin, end});
    begin = end;
  }
  return stages;
}

/// The rank-by-rank search. A wave consists of the stages c*p .. c*p+p-1; a *down* wave goes through the ranks in
/// order, an *up* wave in reverse. Its frontier is the layer at which its stages on the ranks so far end (down) or
/// begin (up).
class Search {
 public:
  Search(const PartitionProblem& problem, FoundPartition& best, std::int64_t work)
      : problem_(problem), best_(best), work_left_(work) {
    for (const Rank rank : problem.rank_of_stage) ranks_ = std::max(ranks_, rank.index() + 1);
    waves_ = problem.rank_of_stage.size() / ranks_;
  }

  /// Replaces `best` by the cheapest partition. Returns false if the placement does not consist of waves or the search
  /// exceeds the work limit.
  bool run() {
    if (!is_made_of_waves() || waves_ > most_waves || problem_.layers > most_packed_layers) return false;
    border_.assign(waves_ + 1, 0);
    border_[waves_] = problem_.layers;
    enumerate_borders(1);
    return work_left_ >= 0;
  }

 private:
  using Frontiers = std::array<std::uint16_t, most_waves>;
  struct State {
    Frontiers at{};
    double cost = 0;
    std::size_t parent = 0;
  };

  bool is_made_of_waves() {
    if (waves_ * ranks_ != problem_.rank_of_stage.size()) return false;
    for (std::size_t wave = 0; wave < waves_; ++wave) {
      const Rank* first = &problem_.rank_of_stage[wave * ranks_];
      down_.push_back(first->index() == 0);
      for (std::size_t k = 0; k < ranks_; ++k)
        if (first[k].index() != (down_[wave] ? k : ranks_ - 1 - k)) return false;
    }
    return true;
  }

  /// A down wave and the following up wave end on the same rank: the search finds their border by itself.
  bool meets_next(std::size_t wave) const { return wave + 1 < waves_ && down_[wave] && !down_[wave + 1]; }
  bool meets_previous(std::size_t wave) const { return wave > 0 && meets_next(wave - 1); }

  /// Enumerates the other borders between waves, and searches for each combination.
  void enumerate_borders(std::size_t wave) {
    if (wave == waves_) return search();
    if (meets_next(wave - 1)) return enumerate_borders(wave + 1);
    const auto ranks = static_cast<int>(ranks_);
    const auto before = static_cast<int>(meets_previous(wave - 1) ? 2 : 1);
    const int last_border = border_[wave - static_cast<std::size_t>(before)];
    const int behind = static_cast<int>(waves_ - wave) * ranks;
    for (border_[wave] = last_border + before * ranks; border_[wave] <= problem_.layers - behind; ++border_[wave]) {
      enumerate_borders(wave + 1);
      if (work_left_ < 0 || best_.cost <= 0) return;
    }
  }

  void search() {
    State start;
    for (std::size_t wave = 0; wave < waves_; ++wave)
      start.at[wave] = static_cast<std::uint16_t>(down_[wave] ? border_[wave] : border_[wave + 1]);
    steps_.assign(1, {start});
    for (rank_ = 0; rank_ < ranks_; ++rank_) {
      steps_.emplace_back();
      index_.clear();
      for (std::size_t from = 0; from < steps_[rank_].size() && work_left_ >= 0; ++from) {
        next_ = steps_[rank_][from];
        if (next_.cost >= best_.cost) continue;
        next_.parent = from;
        extend(0, steps_[rank_][from].at);
      }
    }
    for (std::size_t k = 0; k < steps_.back().size(); ++k)
      if (steps_.back()[k].cost < best_.cost) take(k);
  }

  int ranks_left() const { return static_cast<int>(ranks_ - 1 - rank_); }

  /// The possible numbers of layers of the stage of `wave` on this rank.
  LayerRange lengths(std::size_t wave, const Frontiers& old) const {
    const int at = old[wave];
    int available = 0;  // layers up to the border, or up to those that the other wave needs
    if (meets_next(wave)) {
      available = old[wave + 1] - 1 - ranks_left() - at;
    } else if (meets_previous(wave)) {
      available = at - next_.at[wave - 1] - ranks_left();
    } else {
      available = down_[wave] ? border_[wave + 1] - at : at - border_[wave];
    }
    const int most = available - ranks_left();
    const bool must_end = ranks_left() == 0 && !meets_next(wave);
    return {must_end ? most : 1, most + 1};
  }

  void extend(std::size_t wave, const Frontiers& old) {
    if (wave == waves_) return arrive();
    const LayerRange possible = lengths(wave, old);
    for (int length = std::max(1, possible.begin); length < possible.end; ++length) {
      const int from = old[wave];
      chunks_[wave] = down_[wave] ? LayerRange{from, from + length} : LayerRange{from - length, from};
      if (--work_left_ < 0) return;
      if (problem_.least(rank(), {chunks_.data(), wave + 1}) >= best_.cost) return;
      next_.at[wave] = static_cast<std::uint16_t>(down_[wave] ? from + length : from - length);
      extend(wave + 1, old);
    }
  }

  void arrive() {
    const double before = steps_[rank_][next_.parent].cost;
    State state = next_;
    state.cost = std::max(before, problem_.cost(rank(), {chunks_.data(), waves_}));
    if (state.cost >= best_.cost || rest_of(state.at) > best_.cost * ranks_left() * (1 + cost_rounding)) return;
    std::uint64_t key = 0;
    for (std::size_t wave = 0; wave < waves_; ++wave) key = key << 16 | state.at[wave];
    std::vector<State>& reached = steps_[rank_ + 1];
    const auto [known, is_new] = index_.try_emplace(key, reached.size());
    if (is_new)
      reached.push_back(state);
    else if (state.cost < reached[known->second].cost)
      reached[known->second] = state;
  }

  /// A lower bound of the sum of the costs of the remaining ranks.
  double rest_of(const Frontiers& at) const {
    double rest = 0;
    for (std::size_t wave = 0; wave < waves_; ++wave) {
      if (meets_previous(wave)) continue;
      const LayerRange range = meets_next(wave) ? LayerRange{at[wave], at[wave + 1]}
                               : down_[wave]    ? LayerRange{at[wave], border_[wave + 1]}
                                                : LayerRange{border_[wave], at[wave]};
      rest += problem_.share(range);
    }
    return rest;
  }

  Rank rank() const { return Rank(static_cast<std::int32_t>(rank_)); }

  /// Makes the complete state `k` the best partition.
  void take(std::size_t k) {
    best_.cost = steps_.back()[k].cost;
    best_.stages.assign(problem_.rank_of_stage.size(), {});
    for (std::size_t rank = ranks_; rank > 0; --rank) {
      const State& after = steps_[rank][k];
      k = after.parent;
      const State& before = steps_[rank - 1][k];
      for (std::size_t wave = 0; wave < waves_; ++wave) {
        const std::size_t place = down_[wave] ? rank - 1 : ranks_ - rank;
        best_.stages[wave * ranks_ + place] =
            down_[wave] ? LayerRange{before.at[wave], after.at[wave]} : LayerRange{after.at[wave], before.at[wave]};
      }
    }
  }

  const PartitionProblem& problem_;
  FoundPartition& best_;
  std::int64_t work_left_;
  std::size_t ranks_ = 0;
  std::size_t waves_ = 0;
  std::vector<bool> down_;   // per wave
  std::vector<int> border_;  // the first layer of each wave, and the number of layers
  // The state of the search between these borders:
  std::size_t rank_ = 0;
  std::vector<std::vector<State>> steps_;                 // the states before rank 0, 1, ..., p
  std::unordered_map<std::uint64_t, std::size_t> index_;  // positions in the newest list of states, by frontiers
  State next_;
  std::array<LayerRange, most_waves> chunks_;
};

/// The problem of which the layers between two possible begins are one layer.
class MergedProblem {
 public:
  explicit MergedProblem(const PartitionProblem& whole) : ends_(whole.begins) {
    ends_.push_back(whole.layers);
    merged_.layers = static_cast<int>(whole.begins.size());
    merged_.rank_of_stage = whole.rank_of_stage;
    merged_.cost = [this, &whole](Rank rank, std::span<const LayerRange> stages) {
      return whole.cost(rank, in_layers(stages));
    };
    merged_.least = [this, &whole](Rank rank, std::span<const LayerRange> stages) {
      return whole.least(rank, in_layers(stages));
    };
    merged_.share = [this, &whole](LayerRange range) { return whole.share(in_layers(range)); };
  }
  MergedProblem(const MergedProblem&) = delete;
  MergedProblem& operator=(const MergedProblem&) = delete;

  const PartitionProblem& merged() const { return merged_; }
  const Stages& in_layers(std::span<const LayerRange> merged) {
    layers_.clear();
    for (const LayerRange& range : merged) layers_.push_back(in_layers(range));
    return layers_;
  }
  /// None if a stage begins with a layer that is not among the begins.
  std::optional<Stages> merged_from(const Stages& stages) const {
    Stages merged;
    for (const LayerRange& stage : stages) {
      const auto place = [&](int layer) {
        const auto found = std::lower_bound(ends_.begin(), ends_.end(), layer);
        return *found == layer ? static_cast<int>(found - ends_.begin()) : -1;
      };
      merged.push_back({place(stage.begin), place(stage.end)});
      if (merged.back().begin < 0 || merged.back().end < 0) return std::nullopt;
    }
    return merged;
  }

 private:
  LayerRange in_layers(LayerRange merged) const {
    return {ends_[static_cast<std::size_t>(merged.begin)], ends_[static_cast<std::size_t>(merged.end)]};
  }

  std::vector<int> ends_;  // the begins, and the number of layers
  PartitionProblem merged_;
  Stages layers_;  // of the cost that is evaluated
};

}  // namespace

std::optional<FoundPartition> cheapest_partition(const PartitionProblem& problem, const std::vector<Stages>& known,
                                                 std::int64_t work) {
  if (!problem.begins.empty() && std::ssize(problem.begins) < problem.layers) {
    MergedProblem blocks(problem);
    std::vector<Stages> merged;
    for (const Stages& stages : known)
      if (auto same = blocks.merged_from(stages)) merged.push_back(*std::move(same));
    auto found = cheapest_partition(blocks.merged(), merged, work);
    if (found) found->stages = Stages(blocks.in_layers(found->stages));
    return found;
  }
  if (problem.rank_of_stage.empty() || problem.layers < static_cast<int>(problem.rank_of_stage.size()))
    return std::nullopt;
  FoundPartition best{{}, unreachable, false};
  const auto try_from = [&](const Stages& stages) {
    FoundPartition found = improved(problem, stages);
    if (found.cost < best.cost) best = std::move(found);
  };
  try_from(proportional(problem));
  for (const Stages& stages : known) try_from(stages);
  best.exact = Search(problem, best, work).run();
  if (best.stages.empty()) return std::nullopt;
  return best;
}

}  // namespace penstock
