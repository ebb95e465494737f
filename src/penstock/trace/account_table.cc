#include <algorithm>
#include <array>
#include <cstdio>

#include "penstock/base/error.h"
#include "penstock/trace/account.h"

namespace penstock {
namespace {

constexpr std::size_t column_count = 11;
using Row = std::array<std::string, column_count>;

std::string fixed(double value, const char* format) {
  std::array<char, 400> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string ms(double value) { return fixed(value, "%.2f"); }
std::string percent(double share) { return fixed(100 * share, "%.1f %%"); }

std::string listed(const std::vector<StageId>& stages) {
  std::string text;
  for (const StageId stage : stages) text += (text.empty() ? "" : ",") + std::to_string(stage.value());
  return text;
}

Row row_of(std::size_t rank, const RankAccount& part) {
  return {std::to_string(rank), listed(part.stages),  ms(part.compute),     ms(part.update),
          ms(part.communication), ms(part.waiting()), ms(part.wait_warmup), ms(part.wait_steady),
          ms(part.wait_drain),  ms(part.other),       ms(part.total)};
}

std::string aligned(const std::vector<Row>& rows) {
  std::array<std::size_t, column_count> widths{};
  for (const Row& row : rows)
    for (std::size_t i = 0; i < column_count; ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < column_count; ++i) {
      if (i > 0) text += "  ";
      text += std::string(widths[i] - row[i].size(), ' ') + row[i];
    }
    text += '\n';
  }
  return text;
}

}  // namespace

std::string to_table(const Account& account) {
  std::vector<Row> rows{{"rank", "stages", "compute", "update", "communication", "waiting", "warm-up", "steady",
                         "drain", "other", "total"}};
  for (std::size_t rank = 0; rank < account.ranks.size(); ++rank) rows.push_back(row_of(rank, account.ranks[rank]));
  return say(aligned(rows), "times in ms; waiting = warm-up + steady + drain\n",
             "step ", account.step, ": measured ", ms(account.measured_ms), " ms, predicted ", ms(account.predicted_ms),
             " ms\n",
             "bubble: measured ", percent(account.bubble_measured), ", predicted ", percent(account.bubble_predicted),
             " (makespan); measured ", percent(account.bubble_span_measured), ", predicted ",
             percent(account.bubble_span_predicted), " (span)\n");
}

}  // namespace penstock
