#include "penstock/schedule/dependencies.h"

#include <algorithm>
#include <limits>

#include "penstock/base/error.h"

namespace penstock {
namespace {

constexpr std::size_t no_lane = std::numeric_limits<std::size_t>::max();

constexpr bool is_message(EventKind kind) {
  return kind >= EventKind::sent_forward && kind <= EventKind::arrived_backward;
}

/// Sorts `links` by producer and consumer and removes duplicates. A link carries gradients if any of its duplicates
/// does.
void unite(Links& links) {
  std::sort(links.begin(), links.end());
  std::size_t kept = 0;
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (kept > 0 && links[kept - 1].from == links[i].from && links[kept - 1].to == links[i].to)
      links[kept - 1].gradient = links[kept - 1].gradient || links[i].gradient;
    else
      links[kept++] = links[i];
  }
  links.resize(kept);
}

/// Where each stage's part begins in a list that is sorted by `stage_of(link)`.
template <class StageOf>
std::vector<std::size_t> parts(const Links& links, std::size_t stages, StageOf&& stage_of) {
  std::vector<std::size_t> first(stages + 1, 0);
  for (const Link& link : links) ++first[stage_of(link).index() + 1];
  for (std::size_t s = 0; s < stages; ++s) first[s + 1] += first[s];
  return first;
}

Links message_links(const Schedule& schedule) {
  const int stages = schedule.stage_count();
  Links links;
  std::size_t unite_at = 1024;
  for (const Order& order : schedule.orders)
    for (const Instruction& instruction : order) {
      if (is_compute(instruction.op()) || is_step_wide(instruction.op()) || !faces_peer(instruction)) continue;
      const Link link = link_of(instruction);
      if (link.to.value() >= stages || link.from.value() < 0) continue;
      // There are few links and many messages, and a rank uses a handful of links: most duplicates are dropped here.
      const auto recent = links.end() - static_cast<std::ptrdiff_t>(std::min<std::size_t>(links.size(), 8));
      if (std::find(recent, links.end(), link) != links.end()) continue;
      links.push_back(link);
      if (links.size() < unite_at) continue;
      unite(links);
      unite_at = std::max(unite_at, 2 * links.size());
    }
  return links;
}

/// Adds the neighbouring stages for which `is_link(link)` is true.
template <class IsLink>
Links with_neighbours(Links links, const Schedule& schedule, IsLink&& is_link) {
  for (const Link& link : chain(schedule.stage_count()))
    if (is_link(link)) links.push_back({link.from, link.to, !schedule.is_forward_only()});
  unite(links);
  return links;
}

bool is_on_one_rank(const Link& link, const Schedule& schedule, int pipeline) {
  const std::vector<Rank>& ranks = schedule.placement(pipeline);
  return ranks[link.from.index()] == ranks[link.to.index()];
}

/// In any pipeline.
bool is_on_one_rank(const Link& link, const Schedule& schedule) {
  for (int pipeline = 0; pipeline < schedule.pipeline_count(); ++pipeline)
    if (is_on_one_rank(link, schedule, pipeline)) return true;
  return false;
}

}  // namespace

Link link_of(const Instruction& message) {
  const bool at_producer = message.op() == Op::send_forward || message.op() == Op::recv_backward;
  const bool gradient = message.op() == Op::send_backward || message.op() == Op::recv_backward;
  return at_producer ? Link{message.stage(), message.peer(), gradient}
                     : Link{message.peer(), message.stage(), gradient};
}

std::string to_string(const Link& link) { return say(link.from.value(), ">", link.to.value()); }

Links chain(int stages) {
  Links links;
  for (StageId s(0); s.value() + 1 < stages; s = s.next()) links.push_back({s, s.next()});
  return links;
}

Links executed_links(const Schedule& schedule) {
  return with_neighbours(message_links(schedule), schedule,
                         [&](const Link& link) { return is_on_one_rank(link, schedule); });
}

Links links_of(const Schedule& schedule) {
  const int stages = schedule.stage_count();
  if (!schedule.is_lowered()) return chain(stages);
  Links links = message_links(schedule);
  std::vector<bool> takes(static_cast<std::size_t>(stages), false);
  std::vector<bool> gives(static_cast<std::size_t>(stages), false);
  for (const Link& link : links) {
    gives[link.from.index()] = true;
    takes[link.to.index()] = true;
  }
  return with_neighbours(std::move(links), schedule, [&](const Link& link) {
    return !gives[link.from.index()] || !takes[link.to.index()] || is_on_one_rank(link, schedule);
  });
}

std::string to_string(const Event& event) {
  constexpr const char* names[] = {"done_forward",  "done_input",      "done_weight",      "sent_forward",
                                   "sent_backward", "arrived_forward", "arrived_backward", "reduced",
                                   "normed",        "stepped"};
  const char* name = names[static_cast<std::size_t>(event.kind)];
  if (event.kind >= EventKind::reduced) return say(name, "(", event.stage.value(), ")");
  return say(name, "(", event.stage.value(), is_message(event.kind) ? say(">", event.to.value()) : "", ", ",
             event.micro_batch.value(), ")");
}

Dependencies::Dependencies(const Schedule& schedule, Links links)
    : micro_batches_(std::max(0, schedule.micro_batches)),
      lowered_(schedule.is_lowered()),
      placed_{{}, 0, schedule.rank_of_stage, {}, schedule.more_pipelines, schedule.pipeline_of},
      in_pipeline_(static_cast<std::size_t>(schedule.pipeline_count()), 0),
      links_(std::move(links)) {
  if (schedule.pipeline_of.empty()) in_pipeline_.front() = micro_batches_;
  for (const int pipeline : schedule.pipeline_of) ++in_pipeline_[static_cast<std::size_t>(pipeline)];
  const int stages = schedule.stage_count();
  for (const Link& link : links_) {
    require<ScheduleError>(link.from < link.to, "link ", to_string(link),
                           " does not go forward: values go from an earlier stage to a later one");
    require<ScheduleError>(link.from.value() >= 0 && link.to.value() < stages, "link ", to_string(link), " leaves the ",
                           stages, " stages, which are numbered 0..", stages - 1);
  }
  std::sort(links_.begin(), links_.end());
  for (std::size_t i = 1; i < links_.size(); ++i)
    require<ScheduleError>(links_[i - 1].from != links_[i].from || links_[i - 1].to != links_[i].to, "link ",
                           to_string(links_[i]), " is given twice: pass each pair of stages once");
  incoming_ = links_;
  std::stable_sort(incoming_.begin(), incoming_.end(), [](const Link& a, const Link& b) { return a.to < b.to; });
  first_send_ = parts(links_, stage_count(), [](const Link& link) { return link.from; });
  first_incoming_ = parts(incoming_, stage_count(), [](const Link& link) { return link.to; });

  lane_.assign(links_.size(), no_lane);
  for (std::size_t i = 0; i < links_.size(); ++i)
    for (int pipeline = 0; pipeline < schedule.pipeline_count() && lane_[i] == no_lane; ++pipeline)
      if (!is_on_one_rank(links_[i], schedule, pipeline)) {
        lane_[i] = link_of_lane_.size();
        link_of_lane_.push_back(i);
      }

  reduces_.assign(stage_count(), false);
  norms_.assign(stage_count(), false);
  for (const Order& order : schedule.orders)
    for (const Instruction& instruction : order) {
      if (instruction.stage().index() >= stage_count()) continue;
      if (instruction.op() == Op::reduce) reduces_[instruction.stage().index()] = true;
      if (instruction.op() == Op::norm) norms_[instruction.stage().index()] = true;
    }
}

int Dependencies::crossing_count(const Link& link) const {
  int count = 0;
  for (std::size_t pipeline = 0; pipeline < in_pipeline_.size(); ++pipeline)
    if (!is_on_one_rank(link, placed_, static_cast<int>(pipeline))) count += in_pipeline_[pipeline];
  return count;
}

std::optional<std::size_t> Dependencies::lane(StageId from, StageId to) const {
  if (from.value() < 0 || from.index() >= stage_count()) return std::nullopt;
  const auto begin = links_.begin() + static_cast<std::ptrdiff_t>(first_send_[from.index()]);
  const auto end = links_.begin() + static_cast<std::ptrdiff_t>(first_send_[from.index() + 1]);
  const bool is_first = begin != end && begin->to == to;  // most often the only link of its stage
  const auto found =
      is_first ? begin
               : std::lower_bound(begin, end, to, [](const Link& link, StageId stage) { return link.to < stage; });
  if (found == end || found->to != to) return std::nullopt;
  const std::size_t lane = lane_[static_cast<std::size_t>(found - links_.begin())];
  return lane == no_lane ? std::nullopt : std::optional(lane);
}

std::size_t Dependencies::index(const Event& event) const {
  const auto m = static_cast<std::size_t>(micro_batches_);
  if (event.kind <= EventKind::done_weight)
    return (event.stage.index() * 3 + static_cast<std::size_t>(event.kind)) * m + event.micro_batch.index();
  if (!is_message(event.kind))
    return first_step_event() + event.stage.index() * 3 + static_cast<std::size_t>(event.kind) -
           static_cast<std::size_t>(EventKind::reduced);
  const std::optional<std::size_t> number = lowered_ ? lane(event.stage, event.to) : std::nullopt;
  require<ScheduleError>(number.has_value(), "no messages go along ", event.stage.value(), ">", event.to.value(),
                         ": it is not a link between two ranks of this schedule");
  const std::size_t kind = static_cast<std::size_t>(event.kind) - static_cast<std::size_t>(EventKind::sent_forward);
  return first_message_event() + (*number * 4 + kind) * m + event.micro_batch.index();
}

Event Dependencies::event(std::size_t index) const {
  require<ScheduleError>(index < event_count(), "event ", index, " of ", event_count());
  const auto m = static_cast<std::size_t>(micro_batches_);
  const auto id = [](std::size_t value) { return static_cast<std::int32_t>(value); };
  if (index < first_step_event()) {
    const StageId stage(id(index / m / 3));
    return {static_cast<EventKind>(index / m % 3), stage, stage, MicroBatch(id(index % m))};
  }
  if (index < first_message_event()) {
    const std::size_t k = index - first_step_event();
    const StageId stage(id(k / 3));
    return {static_cast<EventKind>(static_cast<std::size_t>(EventKind::reduced) + k % 3), stage, stage, MicroBatch(0)};
  }
  const std::size_t k = index - first_message_event();
  const Link& link = link_of_lane(k / m / 4);
  const auto kind = static_cast<EventKind>(static_cast<std::size_t>(EventKind::sent_forward) + k / m % 4);
  return {kind, link.from, link.to, MicroBatch(id(k % m))};
}

void Dependencies::check_place(const Instruction& instruction) const {
  const auto stages = static_cast<std::int32_t>(stage_count());
  require<ScheduleError>(instruction.stage().value() < stages && instruction.peer().value() < stages,
                         to_string(instruction), " is out of place: there are ", stages, " stages");
  require<ScheduleError>(instruction.first().value() >= 0 && instruction.first() <= instruction.last() &&
                             instruction.last().value() < micro_batches_,
                         to_string(instruction), " is out of place: there are ", micro_batches_, " micro-batches");
  if (!is_message(instruction.op())) return;
  const Link link = link_of(instruction);
  require<ScheduleError>(lane(link.from, link.to).has_value(), to_string(instruction),
                         " is out of place: ", to_string(link), " is not a link between two ranks");
}

std::vector<Event> Dependencies::predecessors(const Instruction& instruction) const {
  check_place(instruction);
  std::vector<Event> events;
  for_each_predecessor(instruction, [&](const Event& event) { events.push_back(event); });
  return events;
}

std::vector<Event> Dependencies::gives(const Instruction& instruction) const {
  check_place(instruction);
  std::vector<Event> events;
  for_each_given(instruction, [&](const Event& event) { events.push_back(event); });
  return events;
}

}  // namespace penstock
