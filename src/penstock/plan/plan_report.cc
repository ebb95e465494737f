#include "penstock/plan/plan_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/trace/text_table.h"

namespace penstock {
namespace {

constexpr double told = 0.0005;  // less shows as 0.0 %

std::string in_bytes(double bytes) {
  constexpr std::array units{" B", " kB", " MB", " GB", " TB", " PB"};
  std::size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < units.size(); ++unit) bytes /= 1000;
  return fixed(bytes, unit == 0 ? 0 : 2) + units[unit];
}

std::string in_percent(double share) { return fixed(100 * share, 1) + " %"; }

std::size_t fullest_rank(const Prediction& prediction) {
  const std::vector<double>& bytes = prediction.memory_bytes;
  return static_cast<std::size_t>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
}

double most_bytes(const Trial& trial) { return trial.prediction.memory_bytes[fullest_rank(trial.prediction)]; }

std::string verdict_on(const Trial& trial, const Trial& chosen) {
  if (!trial.fits) return say("needs ", std::llround(most_bytes(trial)), " bytes");
  if (&trial == &chosen) return "chosen";
  const double slower = trial.prediction.makespan / chosen.prediction.makespan - 1;
  return slower >= told ? in_percent(slower) + " slower" : "as fast";
}

std::string shown_limit(const Trial& trial) { return trial.memory_limit ? fixed(*trial.memory_limit, 1) : "-"; }

std::string described(const Trial& trial) {
  return say("'", trial.schedule, "' (v = ", trial.chunks, ", m = ", trial.micro_batches,
             trial.memory_limit ? say(", memory limit ", shown_limit(trial)) : "", ", weight gradients ",
             to_string(trial.weight_gradients), ")");
}

}  // namespace

std::string to_table(const Planned& planned, std::size_t most_rows) {
  std::vector<std::vector<std::string>> rows{
      {"schedule", "v", "m", "limit", "W", "cut", "makespan", "bubble", "memory", "verdict"}};
  const Trial& chosen = planned.trials.front();
  for (const Trial& trial : planned.trials) {
    if (most_rows > 0 && rows.size() > most_rows) break;
    rows.push_back({trial.schedule, std::to_string(trial.chunks), std::to_string(trial.micro_batches),
                    shown_limit(trial), to_string(trial.weight_gradients),
                    (trial.is_exact ? "" : "~") + std::string(to_string(trial.cut)),
                    trial.fits ? fixed(trial.prediction.makespan, 3) : "-",
                    trial.fits ? in_percent(trial.prediction.bubble_makespan) : "-", in_bytes(most_bytes(trial)),
                    verdict_on(trial, chosen)});
  }
  const std::size_t hidden = planned.trials.size() + 1 - rows.size();
  // Rows of a generator that adapts differ in its limit alone; where none adapts, nobody needs the column.
  constexpr std::size_t limit_column = 3;
  if (std::none_of(planned.trials.begin(), planned.trials.end(), [](const Trial& trial) { return trial.memory_limit; }))
    for (auto& row : rows) row.erase(row.begin() + limit_column);
  return aligned(rows) + (hidden > 0 ? say("... and ", hidden, " more\n") : "");
}

std::string explanation(const Planned& planned) {
  const Trial& chosen = planned.trials.front();
  const Prediction& prediction = chosen.prediction;
  std::string text = say("Chosen: ", described(chosen), ", the shortest step of ", planned.trials.size(),
                         planned.trials.size() == 1 ? " tried: " : " tried: ", fixed(prediction.makespan, 3), " ",
                         planned.plan.time_unit, ", of which ranks idle ", in_percent(prediction.bubble_makespan), ".");
  const auto rival = std::find_if(planned.trials.begin(), planned.trials.end(),
                                  [&](const Trial& trial) { return trial.fits && trial.schedule != chosen.schedule; });
  if (rival != planned.trials.end())
    text += say(" The best of another kind, ", described(*rival), ", ",
                rival->prediction.makespan >= prediction.makespan * (1 + told)
                    ? say("takes ", in_percent(rival->prediction.makespan / prediction.makespan - 1), " longer")
                    : say("is as fast"),
                " and idles ", in_percent(rival->prediction.bubble_makespan), ".");
  const std::size_t fullest = fullest_rank(prediction);
  text += say(" Rank ", fullest, " holds the most: ", in_bytes(prediction.memory_bytes[fullest]), ", with ",
              fixed(prediction.peak_activations[fullest], 2), " micro-batches alive.");
  const auto refused =
      std::count_if(planned.trials.begin(), planned.trials.end(), [](const Trial& trial) { return !trial.fits; });
  if (refused > 0) text += say(" ", refused, " did not fit into memory.");
  if (!chosen.is_exact) text += " Its cut is the best that was found, not proven the best.";
  if (planned.contention != 1)
    text += say(" While all ranks compute, words take ", fixed(planned.contention, 2),
                " times what they take alone; the costs hold that already.");
  return text + "\n";
}

}  // namespace penstock
