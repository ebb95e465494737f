#include "penstock/schedule/dependencies.h"

#include <gtest/gtest.h>

#include <set>

#include "penstock/base/error.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/lower.h"
#include "penstock/schedule/simulate.h"
#include "penstock/schedule/text.h"

namespace penstock::dependencies_test {
namespace {

/// The events as text, e.g. "done_forward(1, 2) arrived_backward(1>2, 2)".
std::string list(const std::vector<Event>& events) {
  std::string text;
  for (const Event& event : events) text += (text.empty() ? "" : " ") + to_string(event);
  return text;
}

/// Four stages on three ranks, with stages 1 and 2 on one rank and a skip link 0>3 without a gradient.
const Links links = {
    {StageId(0), StageId(1)}, {StageId(1), StageId(2)}, {StageId(2), StageId(3)}, {StageId(0), StageId(3), false}};
Schedule plain() { return {"", 3, {Rank(0), Rank(1), Rank(1), Rank(2)}, {{parse_instruction("0F0")}, {}, {}}}; }
Schedule lowered() {
  Schedule schedule = plain();
  schedule.orders[2] = {parse_instruction("3REDUCE"), parse_instruction("3STEP")};
  return schedule;
}

std::string needs(const Schedule& schedule, const char* instruction) {
  return list(Dependencies(schedule, links).predecessors(parse_instruction(instruction)));
}

TEST(Dependencies, before_lowering_a_stage_needs_events_of_its_neighbours) {
  EXPECT_EQ(needs(plain(), "0F1"), "");
  EXPECT_EQ(needs(plain(), "1F1"), "done_forward(0, 1)");
  EXPECT_EQ(needs(plain(), "3F1"), "done_forward(0, 1) done_forward(2, 1)");
  EXPECT_EQ(needs(plain(), "3B1"), "done_forward(3, 1)");
  EXPECT_EQ(needs(plain(), "0I1"), "done_forward(0, 1) done_input(1, 1)");  // 0>3 has no gradient
  EXPECT_EQ(needs(plain(), "0W0-2"), "done_input(0, 0) done_input(0, 1) done_input(0, 2)");
}

TEST(Dependencies, after_lowering_ranks_depend_on_messages) {
  EXPECT_EQ(needs(lowered(), "1F1"), "arrived_forward(0>1, 1)");
  EXPECT_EQ(needs(lowered(), "2F1"), "done_forward(1, 1)");  // the same rank
  EXPECT_EQ(needs(lowered(), "3F1"), "arrived_forward(0>3, 1) arrived_forward(2>3, 1)");
  EXPECT_EQ(needs(lowered(), "1B1"), "done_forward(1, 1) done_input(2, 1)");
  EXPECT_EQ(needs(lowered(), "2B1"), "done_forward(2, 1) arrived_backward(2>3, 1)");
  EXPECT_EQ(needs(lowered(), "0SEND_F1>3"), "done_forward(0, 1)");
  EXPECT_EQ(needs(lowered(), "3RECV_F1<0"), "sent_forward(0>3, 1)");
  EXPECT_EQ(needs(lowered(), "3SEND_B1"), "done_input(3, 1)");
  EXPECT_EQ(needs(lowered(), "2RECV_B1"), "sent_backward(2>3, 1)");
}

TEST(Dependencies, step_waits_for_norm_and_reduce_if_present) {
  const std::string weights = "done_weight(2, 0) done_weight(2, 1) done_weight(2, 2)";
  EXPECT_EQ(needs(lowered(), "2STEP"), weights);
  EXPECT_EQ(needs(lowered(), "2NORM"), weights);
  EXPECT_EQ(needs(lowered(), "3STEP"), "reduced(3)");
  EXPECT_EQ(needs(lowered(), "3NORM"), "reduced(3)");
  Schedule normed = lowered();
  normed.orders[2].push_back(parse_instruction("3NORM"));
  EXPECT_EQ(needs(normed, "3STEP"), "normed(3)");
}

TEST(Dependencies, lists_the_events_of_an_instruction) {
  const Dependencies dependencies(lowered(), links);
  const auto gives = [&](const char* instruction) { return list(dependencies.gives(parse_instruction(instruction))); };
  EXPECT_EQ(gives("2F1"), "done_forward(2, 1)");
  EXPECT_EQ(gives("2B1"), "done_input(2, 1) done_weight(2, 1)");
  EXPECT_EQ(gives("2I1"), "done_input(2, 1)");
  EXPECT_EQ(gives("2W1-2"), "done_weight(2, 1) done_weight(2, 2)");
  EXPECT_EQ(gives("2SEND_F1"), "sent_forward(2>3, 1)");
  EXPECT_EQ(gives("3RECV_F1<0"), "arrived_forward(0>3, 1)");
  EXPECT_EQ(gives("3SEND_B1"), "sent_backward(2>3, 1)");
  EXPECT_EQ(gives("2RECV_B1"), "arrived_backward(2>3, 1)");
  EXPECT_EQ(gives("2REDUCE"), "reduced(2)");
  EXPECT_EQ(gives("2STEP"), "stepped(2)");
}

TEST(Dependencies, numbers_events_densely) {
  for (const Schedule& schedule : {plain(), lowered()}) {
    const Dependencies dependencies(schedule, links);
    for (std::size_t k = 0; k < dependencies.event_count(); ++k)
      ASSERT_EQ(dependencies.index(dependencies.event(k)), k);
  }
  // 3 per stage and micro-batch, 3 per stage, and 4 per micro-batch and link that crosses ranks: 0>1, 0>3 and 2>3.
  EXPECT_EQ(Dependencies(plain(), links).event_count(), 3u * 4 * 3 + 3 * 4);
  EXPECT_EQ(Dependencies(lowered(), links).event_count(), 3u * 4 * 3 + 3 * 4 + 4 * 3 * 3);
}

TEST(Dependencies, refuses_invalid_links) {
  const auto with = [](const Links& wrong) { return Dependencies(plain(), wrong); };
  EXPECT_THROW(with({{StageId(2), StageId(1)}}), ScheduleError);
  EXPECT_THROW(with({{StageId(1), StageId(1)}}), ScheduleError);
  EXPECT_THROW(with({{StageId(1), StageId(4)}}), ScheduleError);
  EXPECT_THROW(with({{StageId(-1), StageId(1)}}), ScheduleError);
  EXPECT_THROW(with({{StageId(0), StageId(1), true}, {StageId(0), StageId(1), false}}), ScheduleError);
}

TEST(Dependencies, refuses_instructions_out_of_range) {
  EXPECT_THROW(needs(plain(), "4F0"), ScheduleError);
  EXPECT_THROW(needs(plain(), "0F3"), ScheduleError);
  EXPECT_THROW(needs(plain(), "0W0-3"), ScheduleError);
  EXPECT_THROW(needs(lowered(), "0SEND_F0>2"), ScheduleError);  // no link
  EXPECT_THROW(needs(lowered(), "1SEND_F0"), ScheduleError);    // a link within one rank
}

TEST(LinksOf, is_the_chain_before_lowering) {
  EXPECT_EQ(links_of(generate("gpipe", {.ranks = 4, .micro_batches = 1})), chain(4));
  EXPECT_EQ(chain(1), Links{});
}

// Stage 2 reads the network's inputs alone. A pipeline may execute that; in a file, messages may be missing.
TEST(ExecutedLinks, accept_stages_without_a_link) {
  const Links branches{{StageId(0), StageId(1)}, {StageId(1), StageId(3)}, {StageId(2), StageId(3)}};
  const Schedule schedule = lower(generate("interleaved", {.ranks = 2, .micro_batches = 2, .chunks = 2}), branches);
  EXPECT_EQ(executed_links(schedule), (Links{branches[0], branches[2]})) << "1>3 is on one rank";
  EXPECT_NO_THROW(simulate(schedule, StageCosts::unit(), {.links = executed_links(schedule)}));
  EXPECT_THROW(simulate(schedule, StageCosts::unit()), ScheduleError);
}

TEST(LinksOf, finds_the_links_of_a_lowered_schedule) {
  Schedule schedule = generate("gpipe", {.ranks = 4, .micro_batches = 600});
  Links skips = chain(4);
  skips.insert(skips.begin() + 1, {StageId(0), StageId(3), false});
  EXPECT_EQ(links_of(lower(schedule, skips)), skips);
}

TEST(LinksOf, assumes_links_between_neighbours_without_messages) {
  Schedule schedule = plain();
  schedule.orders[0].push_back(parse_instruction("0SEND_F0>3"));  // stages 1 and 2 have no messages
  const Links found = links_of(schedule);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(to_string(found[0]), "0>1");
  EXPECT_EQ(to_string(found[1]), "0>3");
  EXPECT_EQ(to_string(found[2]), "1>2");
  EXPECT_EQ(to_string(found[3]), "2>3");
}

}  // namespace
}  // namespace penstock::dependencies_test
