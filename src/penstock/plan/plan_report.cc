#include "penstock/plan/plan_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

constexpr double visible = 0.0005;      // smaller differences are shown as 0.0 %
constexpr double noise = 0.02;          // of measured costs: smaller differences say nothing
constexpr double large_device = 100e9;  // bytes

std::string in_bytes(double bytes) {
  constexpr std::array units{" B", " kB", " MB", " GB", " TB", " PB"};
  std::size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < units.size(); ++unit) bytes /= 1000;
  return fixed(bytes, unit == 0 ? 0 : 2) + units[unit];
}

std::string result_of(const Candidate& candidate, const Candidate& chosen) {
  if (!candidate.fits)
    return say("needs ", std::llround(candidate.prediction.most_bytes()), " bytes",
               candidate.needed_limit ? say(", limit ", to_string(*candidate.needed_limit)) : "");
  if (&candidate == &chosen) return "chosen";
  const double slower = candidate.prediction.makespan / chosen.prediction.makespan - 1;
  return slower >= visible ? percent(slower) + " slower" : "as fast";
}

std::string shown_limit(const Candidate& candidate) {
  if (!candidate.memory_limit) return "-";
  const auto* multiple = std::get_if<TimesOf1F1B>(&*candidate.memory_limit);
  return multiple ? fixed(multiple->times, 1) : to_string(*candidate.memory_limit);
}

std::string how_chosen(const Planned& planned) {
  if (!planned.is_simplest) return ", the shortest step of ";
  return say(", the simplest within the spread of the costs (", percent(planned.spread), ") of the shortest step of ");
}

/// The sentence about the best candidate with another schedule; empty if there is none.
std::string rival_of(const Planned& planned) {
  const Candidate& chosen = planned.candidates.front();
  const double shortest = chosen.prediction.makespan;
  const auto rival =
      std::find_if(planned.candidates.begin(), planned.candidates.end(),
                   [&](const Candidate& candidate) { return candidate.fits && candidate.schedule != chosen.schedule; });
  if (rival == planned.candidates.end()) return "";
  const double makespan = rival->prediction.makespan;
  return say(" The best of another kind, ", describe(*rival), ", ",
             makespan >= shortest * (1 + visible) ? say("takes ", percent(makespan / shortest - 1), " longer")
                                                  : say("is as fast"),
             " and idles ", percent(rival->prediction.bubble_makespan), ".");
}

/// The sentence about candidates whose steps differ by noise only; empty if the chosen one is the simplest.
std::string within_noise(const Planned& planned) {
  const Candidate& chosen = planned.candidates.front();
  const Candidate& simplest = planned.candidates[simplest_within(planned.candidates, noise)];
  if (&simplest == &chosen) return "";
  const double longer = simplest.prediction.makespan / chosen.prediction.makespan - 1;
  return say(" Within noise (", percent(noise), "): the simpler ", describe(simplest), " takes ", percent(longer),
             " longer.");
}

/// The sentence about the steps of the finalists.
std::string compared_in(const Planned& planned) {
  std::string text = say(" Steps measured in interleaved runs: ", fixed(planned.compared.front().step_ms, 3), " ms");
  if (planned.compared.front().with_fixed_kernels) text += " with LibTorch's kernels";
  for (std::size_t i = 1; i < planned.compared.size(); ++i)
    text += say(i == 1 ? "; of " : ", of ", describe(planned.compared[i].candidate),
                planned.compared[i].with_fixed_kernels ? " with LibTorch's kernels " : " ",
                fixed(planned.compared[i].step_ms, 3), " ms");
  return text + ".";
}

/// The layers of each stage, with blocks instead of the layers inside of them: "embedding, block0-3 | block4-7, head".
std::string shown_stages(const Planned& planned) {
  std::string text;
  for (const std::vector<std::string>& stage : planned.plan.stages) {
    std::vector<std::string> names;
    for (const std::string& layer : stage) {
      const auto block = planned.block_of_layer.find(layer);
      const std::string& name = block == planned.block_of_layer.end() ? layer : block->second;
      if (names.empty() || names.back() != name) names.push_back(name);
    }
    text += (text.empty() ? "" : " | ") + in_ranges(names);
  }
  return text;
}

}  // namespace

std::string describe(const Candidate& candidate) {
  return say("'", candidate.schedule, "' (",
             candidate.replicas > 1 ? say("p = ", candidate.ranks, ", d = ", candidate.replicas, ", ") : "",
             "v = ", candidate.chunks, ", m = ", candidate.micro_batches,
             candidate.memory_limit ? say(", memory limit ", shown_limit(candidate)) : "", ", weight gradients ",
             to_string(candidate.weight_gradients),
             candidate.recomputed.empty() ? "" : say(", recompute of ", candidate.recomputed.size()), ")");
}

std::string to_table(const Planned& planned, std::size_t most_rows) {
  std::vector<std::vector<std::string>> rows{{"schedule", "p", "d", "v", "m", "limit", "W", "partition", "recompute",
                                              "makespan", "bubble", "memory", "result"}};
  const Candidate& chosen = planned.candidates.front();
  for (const Candidate& candidate : planned.candidates) {
    if (most_rows > 0 && rows.size() > most_rows) break;
    rows.push_back({candidate.schedule, std::to_string(candidate.ranks), std::to_string(candidate.replicas),
                    std::to_string(candidate.chunks), std::to_string(candidate.micro_batches), shown_limit(candidate),
                    to_string(candidate.weight_gradients),
                    (candidate.is_exact ? "" : "~") + std::string(to_string(candidate.partition)),
                    std::to_string(candidate.recomputed.size()),
                    candidate.fits ? fixed(candidate.prediction.makespan, 3) : "-",
                    candidate.fits ? percent(candidate.prediction.bubble_makespan) : "-",
                    in_bytes(candidate.prediction.most_bytes()), result_of(candidate, chosen)});
  }
  const std::size_t hidden = planned.candidates.size() + 1 - rows.size();
  // Columns that say nothing: limits if no generator adapts to one, ranks if all candidates have the same.
  const auto all = [&](const auto& is_plain) { return std::ranges::all_of(planned.candidates, is_plain); };
  const auto leave_out = [&](const char* title, bool is_plain) {
    const auto column = std::ranges::find(rows.front(), title) - rows.front().begin();
    if (is_plain)
      for (auto& row : rows) row.erase(row.begin() + column);
  };
  leave_out("p", all([&](const Candidate& candidate) { return candidate.ranks == chosen.ranks; }));
  leave_out("d", all([](const Candidate& candidate) { return candidate.replicas == 1; }));
  leave_out("limit", all([](const Candidate& candidate) { return !candidate.memory_limit; }));
  leave_out("recompute", all([](const Candidate& candidate) { return candidate.recomputed.empty(); }));
  return aligned(rows) + (hidden > 0 ? say("... and ", hidden, " more\n") : "");
}

std::string explanation(const Planned& planned) {
  const Candidate& chosen = planned.candidates.front();
  const Prediction& prediction = chosen.prediction;
  const bool is_measured = !planned.compared.empty();
  std::string text =
      say("Chosen: ", describe(chosen), is_measured ? ", one of the best of " : how_chosen(planned),
          planned.candidates.size(), " tried: ", fixed(prediction.makespan, 3), " ", planned.plan.time_unit,
          is_measured ? " predicted" : "", ", of which ranks idle ", percent(prediction.bubble_makespan), ".");
  text += is_measured ? compared_in(planned) : rival_of(planned) + within_noise(planned);
  if (!planned.block_of_layer.empty()) text += say(" Stages: ", shown_stages(planned), ".");
  const std::size_t fullest = prediction.fullest_rank();
  if (!chosen.recomputed.empty()) text += say(" The backward pass recomputes ", in_ranges(chosen.recomputed), ".");
  text += say(" Rank ", fullest, " holds the most: ", in_bytes(prediction.memory_bytes[fullest]), ", with ",
              fixed(prediction.peak_activations[fullest], 2), " micro-batches alive.");
  if (!planned.has_memory_cap && prediction.most_bytes() > large_device)
    text += " Few devices hold that much, and there is no memory cap: set that of yours, as --memory-cap 80GB.";
  const auto refused = std::count_if(planned.candidates.begin(), planned.candidates.end(),
                                     [](const Candidate& candidate) { return !candidate.fits; });
  if (refused > 0) text += say(" ", refused, " did not fit into memory.");
  if (!chosen.is_exact) text += " Its partition is the best that was found, not proven the best.";
  if (planned.slowdown_under_load != 1)
    text += say(" While all ranks compute, instructions take ", fixed(planned.slowdown_under_load, 2),
                " times what they take without the others; the costs include that already.");
  return text + "\n";
}

}  // namespace penstock
