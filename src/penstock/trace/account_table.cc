#include "penstock/base/error.h"
#include "penstock/trace/account.h"
#include "penstock/trace/text_table.h"

namespace penstock {
namespace {

std::string ms(double value) { return fixed(value, 2); }
std::string percent(double share) { return fixed(100 * share, 1) + " %"; }

std::string listed(const std::vector<StageId>& stages) {
  std::string text;
  for (const StageId stage : stages) text += (text.empty() ? "" : ",") + std::to_string(stage.value());
  return text;
}

std::vector<std::string> row_of(std::size_t rank, const RankAccount& part) {
  return {std::to_string(rank),   listed(part.stages), ms(part.compute),     ms(part.update),
          ms(part.communication), ms(part.waiting()),  ms(part.wait_warmup), ms(part.wait_steady),
          ms(part.wait_drain),    ms(part.other),      ms(part.total)};
}

}  // namespace

std::string to_table(const Account& account) {
  std::vector<std::vector<std::string>> rows{{"rank", "stages", "compute", "update", "communication", "waiting",
                                              "warm-up", "steady", "drain", "other", "total"}};
  for (std::size_t rank = 0; rank < account.ranks.size(); ++rank) rows.push_back(row_of(rank, account.ranks[rank]));
  return say(aligned(rows), "times in ms; waiting = warm-up + steady + drain\n",
             "step ", account.step, ": measured ", ms(account.measured_ms), " ms, predicted ", ms(account.predicted_ms),
             " ms\n",
             "bubble: measured ", percent(account.bubble_measured), ", predicted ", percent(account.bubble_predicted),
             " (makespan); measured ", percent(account.bubble_span_measured), ", predicted ",
             percent(account.bubble_span_predicted), " (span)\n");
}

}  // namespace penstock
