#include "penstock/schedule/timeline_grid.h"

#include <algorithm>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/schedule/replay.h"
#include "penstock/schedule/violation.h"

namespace penstock {
namespace {

/// An instruction that is drawn: its column, and its position in the rank's order.
struct Placed {
  int column = 0;
  int position = 0;
};

struct Layout {
  std::vector<std::vector<Placed>> ranks;
  int columns = 0;
  std::optional<int> halt;  // the column between the instructions that ran and those that could not
};

bool is_marked(const std::optional<GridCell>& marked, Rank rank, int position) {
  return marked && marked->rank == rank && marked->position == position;
}

/// Places each instruction that runs at its start time, when every instruction takes one unit, and the rest behind them
/// in order.
class Placer {
 public:
  Placer(const Schedule& schedule, const std::optional<GridCell>& marked)
      : schedule_(schedule), marked_(marked), layout_{}, clock_(schedule.orders.size(), 0) {
    layout_.ranks.resize(schedule.orders.size());
  }

  Layout place() {
    std::vector<int> reached(schedule_.orders.size(), 0);
    if (!find_misplaced(schedule_)) {
      const Dependencies dependencies(schedule_, links_of(schedule_));
      if (is_replayable(schedule_, dependencies)) {
        const auto run = [&](Rank rank, int position, const Instruction&, double ready) {
          return static_cast<double>(put(rank, position, static_cast<int>(ready)));
        };
        reached = replay(schedule_, dependencies, no_message_time, run).reached;
      }
    }
    place_rest(reached);
    return std::move(layout_);
  }

 private:
  bool is_drawn(Rank rank, int position) const {
    const Op op = schedule_.orders[rank.index()][static_cast<std::size_t>(position)].op();
    return !is_message(op) || is_marked(marked_, rank, position);
  }

  /// Returns the end of the instruction.
  int put(Rank rank, int position, int ready) {
    int& clock = clock_[rank.index()];
    clock = std::max(clock, ready);
    if (!is_drawn(rank, position)) return clock;
    layout_.ranks[rank.index()].push_back({clock, position});
    layout_.columns = std::max(layout_.columns, clock + 1);
    return ++clock;
  }

  void place_rest(const std::vector<int>& reached) {
    bool ran = false;
    bool rest = false;
    for (std::size_t rank = 0; rank < reached.size(); ++rank) {
      ran = ran || reached[rank] > 0;
      rest = rest || static_cast<std::size_t>(reached[rank]) < schedule_.orders[rank].size();
    }
    if (ran && rest) layout_.halt = layout_.columns++;
    for (std::size_t r = 0; r < reached.size(); ++r) {
      const Rank rank(static_cast<std::int32_t>(r));
      const auto size = static_cast<int>(schedule_.orders[r].size());
      const int from = layout_.halt ? *layout_.halt + 1 : 0;
      for (int position = reached[r]; position < size; ++position) put(rank, position, from);
      if (!is_marked(marked_, rank, size)) continue;  // "missing at the end"
      layout_.ranks[r].push_back({clock_[r], size});
      layout_.columns = std::max(layout_.columns, clock_[r] + 1);
    }
  }

  const Schedule& schedule_;
  const std::optional<GridCell>& marked_;
  Layout layout_;
  std::vector<int> clock_;
};

/// The columns begin..end-1 are shown; the marked cell is among them.
struct Window {
  int begin = 0;
  int end = 0;
};

Window window_of(const Layout& layout, const GridOptions& options) {
  if (options.max_columns <= 0 || layout.columns <= options.max_columns) return {0, layout.columns};
  int begin = 0;
  if (options.marked && options.marked->rank.value() >= 0 && options.marked->rank.index() < layout.ranks.size())
    for (const Placed& placed : layout.ranks[options.marked->rank.index()])
      if (placed.position == options.marked->position && placed.column >= options.max_columns)
        begin = placed.column - options.max_columns / 2;
  return {begin, std::min(layout.columns, begin + options.max_columns)};
}

std::string text_of(const Schedule& schedule, Rank rank, int position, const std::optional<GridCell>& marked) {
  const Order& order = schedule.orders[rank.index()];
  const auto k = static_cast<std::size_t>(position);
  std::string text = k < order.size() ? to_string(order[k]) : "missing";
  if (k < order.size() && order[k].overlaps_next()) text += '+';
  return is_marked(marked, rank, position) ? ">" + text + "<" : text;
}

/// `text` in the middle of `width` columns; an odd space goes to the right.
std::string centred(const std::string& text, std::size_t width) {
  const std::size_t spaces = width - std::min(width, text.size());
  return std::string(spaces / 2, ' ') + text + std::string(spaces - spaces / 2, ' ');
}

}  // namespace

std::string timeline_grid(const Schedule& schedule, const GridOptions& options) {
  const Layout layout = Placer(schedule, options.marked).place();
  const Window window = window_of(layout, options);
  const auto columns = static_cast<std::size_t>(window.end - window.begin);

  std::vector<std::vector<std::string>> rows;
  std::size_t width = 1;
  for (std::size_t r = 0; r < layout.ranks.size(); ++r) {
    std::vector<std::string> row(columns, ".");
    if (layout.halt && *layout.halt >= window.begin && *layout.halt < window.end)
      row[static_cast<std::size_t>(*layout.halt - window.begin)] = "|";
    const auto& placed = layout.ranks[r];
    auto first = std::partition_point(placed.begin(), placed.end(),
                                      [&](const Placed& instruction) { return instruction.column < window.begin; });
    for (; first != placed.end() && first->column < window.end; ++first) {
      std::string& cell = row[static_cast<std::size_t>(first->column - window.begin)];
      cell = text_of(schedule, Rank(static_cast<std::int32_t>(r)), first->position, options.marked);
      width = std::max(width, cell.size());
    }
    rows.push_back(std::move(row));
  }

  const std::size_t digits = std::to_string(rows.empty() ? 0 : rows.size() - 1).size();
  std::string text;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::string number = std::to_string(r);
    std::string line = "rank " + std::string(digits - number.size(), ' ') + number + " |";
    if (window.begin > 0) line += " ...";
    for (const std::string& cell : rows[r]) line += " " + centred(cell, width);
    if (window.end < layout.columns) line += " ...";
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace penstock
