#include "penstock/launch/elastic.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::elastic_test {
namespace {

namespace fs = std::filesystem;

TEST(Elastic, ranges) {
  EXPECT_EQ(parse_elastic_range("2:4").least, 2);
  EXPECT_EQ(parse_elastic_range("2:4").most, 4);
  EXPECT_EQ(parse_elastic_range("3:3").most, 3);
  for (const char* text : {"", "2", ":", "2:", ":4", "4:2", "0:2", "-1:2", "2:4:6", "a:b", "2:4x"})
    EXPECT_THROW(parse_elastic_range(text), ConfigError) << text;
}

TEST(Elastic, as_many_pipeline_ranks_as_there_are_slots_for) {
  constexpr ElasticRange range{2, 4};
  EXPECT_EQ(pipeline_ranks(range, 9, 1), 4);
  EXPECT_EQ(pipeline_ranks(range, 3, 1), 3);
  EXPECT_EQ(pipeline_ranks(range, 2, 1), 2);
  EXPECT_EQ(pipeline_ranks(range, 7, 2), 3) << "each replica takes a slot for every pipeline rank";
  EXPECT_THROW(pipeline_ranks(range, 1, 1), Failure);
  EXPECT_EQ(test::error_text<Failure>([&] { pipeline_ranks(range, 3, 2); }),
            "there are 3 slots, but --elastic 2:4 with 2 replicas takes at least 4");
}

TEST(Elastic, flags_of_the_training) {
  EXPECT_EQ(as_shell_line(elastic_arguments({"penstock", "train", "--stages", "9"}, 3, 2)),
            "penstock train --stages 9 --stages 3 --replicas 2");
}

TEST(Elastic, a_fixed_number_of_stages_is_refused) {
  const TrainSettings elastic{.checkpoint = "run", .schedule = "zb-h1", .partition = "parameters"};
  EXPECT_NO_THROW(require_elastic(elastic));
  const auto refused = [&](auto&& change, const std::string& reason) {
    TrainSettings settings = elastic;
    change(settings);
    EXPECT_NE(test::error_text<ConfigError>([&] { require_elastic(settings); }).find(reason), std::string::npos)
        << reason;
  };
  refused([](TrainSettings& s) { s.checkpoint = ""; }, "give it --checkpoint DIR");
  refused([](TrainSettings& s) { s.plan = "best.plan"; }, "--plan best.plan fixes it");
  refused([](TrainSettings& s) { s.schedule = "mine.sched"; }, "the schedule file mine.sched fixes it");
  refused([](TrainSettings& s) { s.schedule = "torch.csv"; }, "the schedule file torch.csv fixes it");
  refused([](TrainSettings& s) { s.partition = "layer3,layer5"; }, "--partition layer3,layer5 fixes the stages");
}

TEST(Elastic, discovered_hosts) {
  const auto hosts = parse_discovered_hosts("# my hosts\n\n a:2 \nb\r\na:1\n c:4");
  ASSERT_EQ(hosts.size(), 3U);
  EXPECT_EQ(hosts[0].name, "a");
  EXPECT_EQ(hosts[0].slots, 3);
  EXPECT_EQ(hosts[1].name, "b");
  EXPECT_EQ(hosts[1].slots, 1);
  EXPECT_EQ(slots_of(hosts), 8);
  EXPECT_TRUE(parse_discovered_hosts("# none left\n").empty());
  for (const char* text : {"a:two", "a b", "a,b", ":3", "a:0"})
    EXPECT_THROW(parse_discovered_hosts(text), ConfigError) << text;
}

class ElasticProgramTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  std::string program(const std::string& name, const std::string& script) {
    const fs::path path = folder_ / name;
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(path, fs::perms::owner_all);
    return path.string();
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / ("elastic_" + std::to_string(::getpid()));
};

TEST_F(ElasticProgramTest, host_discovery) {
  EXPECT_EQ(slots_of(discover_hosts(program("hosts", "echo a:2; echo b"))), 3);
  const std::string failing = program("failing", "echo a:2; exit 3");
  EXPECT_EQ(test::error_text<Failure>([&] { discover_hosts(failing); }),
            "the host discovery " + failing + " ended with exit code 3");
}

TEST_F(ElasticProgramTest, hosts_that_start_a_process) {
  // In place of mpirun: -n 1 --host NAME true.
  const std::string launcher = program("launcher", "[ $4 != gone ] && exec $5");
  const auto found = reachable_hosts(parse_hosts("a:2,gone:3,localhost:4"), launcher);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].name, "a");
  EXPECT_EQ(found[0].slots, 2);
  EXPECT_EQ(found[1].name, "localhost");
  EXPECT_EQ(reachable_hosts(parse_hosts("localhost:4"), "/bin/false").size(), 1U) << "this machine is not asked";
}

}  // namespace
}  // namespace penstock::elastic_test
