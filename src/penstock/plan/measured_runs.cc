#include "penstock/plan/measured_runs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/candidates.h"
#include "penstock/plan/layer_sums.h"
#include "penstock/plan/planner.h"
#include "penstock/schedule/generate.h"

namespace penstock {
namespace {

const std::vector<std::string> required_columns = {"schedule", "ranks", "micro_batches", "measured"};
const std::vector<std::string> optional_columns = {"chunks", "partition", "weight_gradients"};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells = separated(line, ',');
  for (std::string_view& cell : cells) {
    cell = trimmed(cell);
    if (cell.size() > 1 && cell.front() == '"' && cell.back() == '"') cell = cell.substr(1, cell.size() - 2);
  }
  return cells;
}

/// One line of the table.
class Row {
 public:
  Row(int line, std::map<std::string_view, std::string_view> cells) : line_(line), cells_(std::move(cells)) {}

  int line() const { return line_; }
  std::string_view text(std::string_view column) const {
    const auto found = cells_.find(column);
    return found == cells_.end() ? std::string_view{} : found->second;
  }
  int whole(std::string_view column) const {
    const auto number = number_of<int>(text(column));
    require<DataError>(number && *number >= 1 && *number <= most_micro_batches, column, " is '", text(column),
                       "': pass a whole number from 1 to ", most_micro_batches);
    return *number;
  }
  double time(std::string_view column) const {
    const auto number = number_of<double>(text(column));
    require<DataError>(number && std::isfinite(*number) && *number > 0, column, " is '", text(column),
                       "': pass the time of a step, above 0, in the unit of the costs");
    return *number;
  }

 private:
  int line_;
  std::map<std::string_view, std::string_view> cells_;
};

void require_columns(const std::vector<std::string_view>& columns, int line) {
  std::vector<std::string> known = required_columns;
  known.insert(known.end(), optional_columns.begin(), optional_columns.end());
  for (auto column = columns.begin(); column != columns.end(); ++column) {
    require<DataError>(std::find(known.begin(), known.end(), *column) != known.end(), "line ", line,
                       " of the measured runs: column '", *column, "' is not known: did you mean '",
                       nearest(*column, known), "'? The columns are ", listed(known));
    require<DataError>(std::find(columns.begin(), column, *column) == column, "line ", line,
                       " of the measured runs: column '", *column, "' for the second time");
  }
  for (const std::string& column : required_columns)
    require<DataError>(std::find(columns.begin(), columns.end(), column) != columns.end(), "line ", line,
                       " of the measured runs: there is no column '", column, "': the first line names ",
                       listed(required_columns));
}

std::vector<Row> rows_of(std::string_view text) {
  std::vector<std::string_view> columns;
  std::vector<Row> rows;
  int number = 0;
  for (const std::string_view line : separated(text, '\n')) {
    ++number;
    if (trimmed(line).empty() || trimmed(line).front() == '#') continue;
    const std::vector<std::string_view> cells = cells_of(line);
    if (columns.empty()) {
      columns = cells;
      require_columns(columns, number);
      continue;
    }
    require<DataError>(cells.size() == columns.size(), "line ", number, " of the measured runs has ", cells.size(),
                       " cells, and the first line ", columns.size(),
                       ": write as many; the layers of a partition are separated by ';'");
    std::map<std::string_view, std::string_view> named;
    for (std::size_t i = 0; i < cells.size(); ++i) named.emplace(columns[i], cells[i]);
    rows.emplace_back(number, std::move(named));
  }
  require<DataError>(!rows.empty(), "the measured runs are empty: write a line with the columns ",
                     listed(required_columns), ", and then a line for each run");
  return rows;
}

/// "uniform", "parameters", or "layer4;layer8".
StageLayers stages_of(std::string text, const LayerCosts& costs, int stages) {
  std::replace(text.begin(), text.end(), ';', ',');
  std::vector<LayerSize> layers;
  for (const LayerCost& layer : costs.layers)
    layers.push_back({layer.name, static_cast<std::int64_t>(layer.parameter_bytes), {}, layer.block});
  const Partition partition = partition_layers(text, layers, stages);
  StageLayers of_stages(static_cast<std::size_t>(stages));
  for (std::size_t layer = 0; layer < partition.size(); ++layer)
    of_stages[partition[layer].index()].push_back(layers[layer].name);
  return of_stages;
}

MeasuredStep measured_step(const Row& row, LayerCosts costs) {
  const std::string name(row.text("schedule"));
  const ScheduleGenerator& generator = find_generator(name);
  const int m = row.whole("micro_batches");
  costs.ranks = row.whole("ranks");
  costs.micro_batches = {m};
  costs.memory_cap_bytes.reset();  // it has run
  PlanConstraints constraints{.schedules = {std::string(generator.name)}, .weight_gradients = WeightGradients::stream};
  constraints.chunks = row.text("chunks").empty() ? generator.default_chunks : row.whole("chunks");
  if (const std::string_view mode = row.text("weight_gradients"); !mode.empty()) {
    const auto known = weight_gradients_named(mode);
    require<DataError>(known == WeightGradients::stream || known == WeightGradients::fused, "weight_gradients is '",
                       mode, "': pass stream or fused");
    constraints.weight_gradients = *known;
  }
  if (const std::string partition(row.text("partition")); !partition.empty())
    constraints.stages = stages_of(partition, costs, costs.ranks * *constraints.chunks);
  const Plan plan = make_plan(costs, constraints).plan;
  return {plan.schedule, stage_costs(LayerSums(costs, m), plan.schedule.rank_of_stage, ranges_of(plan.stages, costs)),
          row.time("measured"),
          /*overlaps=*/false, say(name, ", ", counted(costs.ranks, "rank"), ", m = ", m)};
}

}  // namespace

std::vector<MeasuredStep> read_measured_runs(std::string_view text, const LayerCosts& costs) {
  LayerCosts without_terms = costs;
  without_terms.terms = {};
  std::vector<MeasuredStep> steps;
  for (const Row& row : rows_of(text)) {
    try {
      steps.push_back(measured_step(row, without_terms));
    } catch (const Misuse& error) {
      throw DataError(say("line ", row.line(), " of the measured runs: ", error.what()));
    }
  }
  return steps;
}

}  // namespace penstock
