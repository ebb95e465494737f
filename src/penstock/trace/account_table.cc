#include "penstock/base/error.h"
#include "penstock/trace/account.h"
#include "penstock/trace/text_table.h"

namespace penstock {
namespace {

std::string ms(double value) { return fixed(value, 2); }
std::string listed(const std::vector<StageId>& stages) {
  std::string text;
  for (const StageId stage : stages) text += (text.empty() ? "" : ",") + std::to_string(stage.value());
  return text;
}

/// A column of the table and the member of RankAccount that it shows.
struct Column {
  const char* name;
  double RankAccount::*part;
};

constexpr Column columns[] = {{"compute", &RankAccount::compute},      {"update", &RankAccount::update},
                              {"sync", &RankAccount::synchronisation}, {"sending", &RankAccount::communication},
                              {"warm-up", &RankAccount::wait_warmup},  {"imbalance", &RankAccount::wait_imbalance},
                              {"message", &RankAccount::wait_message}, {"woken-late", &RankAccount::wait_late},
                              {"drain", &RankAccount::wait_drain},     {"other", &RankAccount::other},
                              {"total", &RankAccount::total}};

/// The last row: the share of each part in the time of all ranks.
std::vector<std::string> shares(const std::vector<RankAccount>& ranks) {
  const auto sum_of = [&](double RankAccount::*part) {
    double sum = 0;
    for (const RankAccount& rank : ranks) sum += rank.*part;
    return sum;
  };
  const double all = sum_of(&RankAccount::total);
  std::vector<std::string> row{"all", ""};
  for (const Column& column : columns) row.push_back(percent(all > 0 ? sum_of(column.part) / all : 0));
  return row;
}

}  // namespace

std::string to_table(const Account& account) {
  std::vector<std::vector<std::string>> rows{{"rank", "stages"}};
  for (const Column& column : columns) rows.front().push_back(column.name);
  for (std::size_t rank = 0; rank < account.ranks.size(); ++rank) {
    rows.push_back({std::to_string(rank), listed(account.ranks[rank].stages)});
    for (const Column& column : columns) rows.back().push_back(ms(account.ranks[rank].*column.part));
  }
  rows.push_back(shares(account.ranks));
  return say(aligned(rows), "times in ms; warm-up, imbalance, message, woken-late and drain are waits\n",
             account.between_steps_ms
                 ? say("between steps: ", ms(*account.between_steps_ms), " ms in which no rank had anything to do\n")
                 : "",
             "step ", account.step, ", the median of ", account.steps, " (", ms(account.shortest_ms), " to ",
             ms(account.longest_ms), " ms): measured ", ms(account.measured_ms), " ms, predicted ",
             ms(account.predicted_ms), " ms from the times of this run's own instructions\n",
             account.planned_ms ? say("the plan predicted ", ms(*account.planned_ms), " ms before the run\n") : "",
             "bubble: measured ", percent(account.bubble_measured), ", predicted ", percent(account.bubble_predicted),
             " (makespan); measured ", percent(account.bubble_span_measured), ", predicted ",
             percent(account.bubble_span_predicted), " (span)\n");
}

}  // namespace penstock
