#include "penstock/launch/choose_launcher.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"

namespace penstock::choose_launcher_test {
namespace {

constexpr LauncherSupply with_mpi{.has_mpirun = true, .is_mpi_built = true}, without_mpirun{.is_mpi_built = true},
    built_without_mpi{.has_mpirun = true};

TEST(ChooseLauncher, mpirun_is_taken_if_there_is_one) {
  EXPECT_FALSE(starts_over_gloo({}, with_mpi));
  EXPECT_TRUE(starts_over_gloo({}, without_mpirun));
}

TEST(ChooseLauncher, a_build_without_mpi_joins_the_ranks_of_its_verbs_by_gloo) {
  EXPECT_TRUE(starts_over_gloo({.is_verb = true}, built_without_mpi));
  EXPECT_FALSE(starts_over_gloo({.is_verb = false}, built_without_mpi));
}

TEST(ChooseLauncher, a_named_transport_decides) {
  EXPECT_TRUE(starts_over_gloo({.transport = "gloo"}, with_mpi));
  EXPECT_FALSE(starts_over_gloo({.transport = "mpi"}, without_mpirun));
  EXPECT_TRUE(starts_over_gloo({.verb_transport = "gloo"}, with_mpi));
  EXPECT_TRUE(starts_over_gloo({.verb_transport = "nccl"}, with_mpi));
  EXPECT_TRUE(starts_over_gloo({.transport = "gloo", .verb_transport = "nccl"}, with_mpi));
  EXPECT_FALSE(starts_over_gloo({.verb_transport = "mpi"}, without_mpirun));
  EXPECT_TRUE(starts_over_gloo({.transport = "gloo", .verb_transport = "gloo"}, with_mpi));
  EXPECT_FALSE(starts_over_gloo({.verb_transport = "threads"}, with_mpi));
}

TEST(ChooseLauncher, a_launcher_and_other_hosts_need_mpi) {
  EXPECT_FALSE(starts_over_gloo({.launcher = "srun"}, without_mpirun));
  EXPECT_FALSE(starts_over_gloo({.launcher = "mpirun", .verb_transport = "gloo"}, with_mpi));
  EXPECT_FALSE(starts_over_gloo({.hosts = parse_hosts("no-such-host.invalid:2")}, without_mpirun));
  EXPECT_TRUE(starts_over_gloo({.hosts = parse_hosts("localhost:2")}, without_mpirun));
}

TEST(ChooseLauncher, refuses_contradictions) {
  EXPECT_THROW(starts_over_gloo({.transport = "gloo", .launcher = "mpirun"}, with_mpi), ConfigError);
  EXPECT_THROW(starts_over_gloo({.transport = "gloo", .verb_transport = "mpi"}, with_mpi), ConfigError);
  EXPECT_THROW(starts_over_gloo({.transport = "mpi", .verb_transport = "gloo"}, with_mpi), ConfigError);
  EXPECT_THROW(starts_over_gloo({.transport = "mpi", .verb_transport = "nccl"}, with_mpi), ConfigError);
}

TEST(ChooseLauncher, ranks_over_gloo_are_on_this_machine) {
  EXPECT_NO_THROW(require_this_machine({}, "--hosts"));
  EXPECT_NO_THROW(require_this_machine(parse_hosts("localhost:2"), "--hosts"));
  EXPECT_THROW(require_this_machine(parse_hosts("localhost,no-such-host.invalid"), "--hosts"), ConfigError);
}

TEST(ChooseLauncher, finds_the_last_value_of_a_flag) {
  const auto value = [](const std::vector<std::string>& arguments) { return flag_value(arguments, "--transport"); };
  EXPECT_EQ(value({"train", "--transport", "mpi", "--steps", "3"}), "mpi");
  EXPECT_EQ(value({"train", "--transport=gloo"}), "gloo");
  EXPECT_EQ(value({"train", "--transport", "mpi", "--transport=gloo"}), "gloo");
  EXPECT_EQ(value({"train", "--transports", "mpi"}), "");
  EXPECT_EQ(value({"train", "--transport"}), "");
}

}  // namespace
}  // namespace penstock::choose_launcher_test
