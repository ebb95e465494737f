#include <gtest/gtest.h>

#include <string>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/schedule/schedule.h"
#include "penstock/trace/pictures.h"
#include "tests/trace/occurrences.h"

namespace penstock::schedule_html_test {
namespace {

using nlohmann::json;

/// The JSON in the script element with this id.
json data_of(const std::string& page, const std::string& id) {
  const std::string opening = "<script type=\"application/json\" id=\"" + id + "\">";
  const std::size_t begin = page.find(opening) + opening.size();
  return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST(ScheduleHtml, contains_the_schedule_json) {
  const Schedule schedule = lower(generate("1f1b", {.ranks = 2, .micro_batches = 4}));
  const std::string page = schedule_html(schedule, StageCosts::unit());
  EXPECT_EQ(data_of(page, "schedule"), json::parse(schedule_json(schedule, StageCosts::unit())));
}

// Regression test: after a renaming, the script read a member that slots do not have, and tooltips were "undefined".
TEST(ScheduleHtml, the_script_reads_only_members_that_slots_have) {
  const Schedule with_pairs = generate("dualpipe-v", {.ranks = 2, .micro_batches = 4, .chunks = 2});
  const std::string page = schedule_html(with_pairs, StageCosts::unit());
  const json form = data_of(page, "schedule");
  json all_members = json::object();
  for (const json& slot : form["slots"]) all_members.update(slot);
  int members = 0;
  for (const std::string object : {" slot.", "(slot.", "slots[index]."}) {
    for (std::size_t at = page.find(object); at != page.npos; at = page.find(object, at + 1)) {
      const std::size_t begin = at + object.size();
      const std::string member =
          page.substr(begin, page.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", begin) - begin);
      EXPECT_TRUE(all_members.contains(member)) << object << member;
      ++members;
    }
  }
  EXPECT_GT(members, 10);
}

TEST(ScheduleHtml, is_self_contained) {
  const std::string page = schedule_html(generate("1f1b", {.ranks = 2, .micro_batches = 4}), StageCosts::unit());
  for (const char* from_elsewhere : {"http:", "https:", "src=", "href=", "@import", "url("})
    EXPECT_EQ(occurrences(page, from_elsewhere), 0) << from_elsewhere;
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  EXPECT_TRUE(page.ends_with("</html>\n"));
}

TEST(ScheduleHtml, has_the_rows_and_colours_of_the_svg) {
  const Schedule schedule = read_schedule(R"(penstock schedule 1
name v
ranks 1
stages 2
micro_batches 1
rank_of_stage 0 0
rank 0: 0F0 1F0 1I0 1W0 0I0 0W0
)");
  const json look = data_of(schedule_html(schedule, StageCosts::unit()), "look");
  EXPECT_EQ(look["title"], "v: p = 1, v = 2, m = 1");
  EXPECT_EQ(look["rows"], (json::array({{{"name", "rank 0"}, {"place", "stages 0,1"}}})));
  const std::string svg = schedule_svg(schedule, StageCosts::unit());
  for (const char* op : {"F", "I", "W"})
    for (const json& colour : look["kinds"][op]["colour_of_stage"])
      EXPECT_EQ(occurrences(svg, "fill=\"" + colour.get<std::string>() + "\""), 2) << op << ": a box and the legend";
}

TEST(ScheduleHtml, a_name_cannot_break_the_page) {
  Schedule schedule = generate("gpipe", {.ranks = 1, .micro_batches = 1});
  schedule.name = "</script><!-- @SCHEDULE@ \xff";
  const std::string page = schedule_html(schedule, StageCosts::unit());
  EXPECT_EQ(occurrences(page, "</script>"), 3);
  EXPECT_EQ(occurrences(page, "<!--"), 0);
  EXPECT_EQ(data_of(page, "schedule")["name"], "</script><!-- @SCHEDULE@ \xef\xbf\xbd");
}

TEST(ScheduleHtml, accepts_many_boxes_and_refuses_too_many) {
  EXPECT_GT(schedule_html(generate("gpipe", {.ranks = 10, .micro_batches = 2500}), StageCosts::unit()).size(), 50'000u);
  EXPECT_THROW(schedule_html(generate("gpipe", {.ranks = 100, .micro_batches = 1501}), StageCosts::unit()),
               ConfigError);
}

}  // namespace
}  // namespace penstock::schedule_html_test
