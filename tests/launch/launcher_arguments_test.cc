#include "penstock/launch/launcher_arguments.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"

namespace penstock::launcher_arguments_test {
namespace {

LaunchingMachine machine_of(int cores) {
  LaunchingMachine machine;
  machine.cores = cores;
  return machine;
}

std::string line_of(const LaunchSettings& settings, const LaunchingMachine& machine) {
  return as_shell_line(launcher_arguments(settings, machine));
}

TEST(LauncherArguments, binds_ranks_to_equal_shares_of_the_cores) {
  EXPECT_EQ(line_of({.ranks = 2}, machine_of(2)), "mpirun -n 2 --map-by slot:PE=1 --bind-to core --mca btl self,vader");
  EXPECT_EQ(line_of({.ranks = 3}, machine_of(16)),
            "mpirun -n 3 --map-by slot:PE=5 --bind-to core --mca btl self,vader");
}

TEST(LauncherArguments, ranks_that_share_cores_are_not_bound) {
  EXPECT_EQ(line_of({.ranks = 8}, machine_of(2)), "mpirun -n 8 --oversubscribe --bind-to none --mca btl self,vader");
  LaunchingMachine confined = machine_of(4);
  confined.confined = true;
  EXPECT_EQ(line_of({.ranks = 2}, confined), "mpirun -n 2 --bind-to none --mca btl self,vader");
}

TEST(LauncherArguments, user_settings_take_precedence) {
  LaunchingMachine machine = machine_of(2);
  machine.btl_chosen = true;
  EXPECT_EQ(line_of({.ranks = 2, .launcher = "/opt/bin/mpirun", .bind = "socket"}, machine),
            "/opt/bin/mpirun -n 2 --bind-to socket");
}

TEST(LauncherArguments, hosts) {
  EXPECT_EQ(line_of({.hosts = parse_hosts("a:2,b:3")}, machine_of(1)), "mpirun -n 5 --host a:2,b:3 --bind-to none");
  EXPECT_EQ(line_of({.ranks = 3, .hosts = parse_hosts("a,b")}, machine_of(8)),
            "mpirun -n 3 --host a:1,b:1 --oversubscribe --bind-to none");
  EXPECT_EQ(line_of({.hosts = parse_hosts("localhost,localhost:2")}, machine_of(8)),
            "mpirun -n 3 --host localhost:3 --bind-to none --mca btl self,vader");
}

TEST(LauncherArguments, refuses_invalid_hosts) {
  for (const char* text : {"", ",", "a,", ":2", "a:", "a:0", "a:-1", "a:2x", "a:two", "a:2000000000",
                           "a:600000,b:600000", "a:600000,a:600000"})
    EXPECT_THROW(parse_hosts(text), ConfigError) << text;
}

TEST(LauncherArguments, srun) {
  EXPECT_EQ(line_of({.ranks = 4, .launcher = "srun"}, machine_of(2)),
            "srun --ntasks=4 --mpi=pmix --kill-on-bad-exit=1 --quit-on-interrupt");
  EXPECT_EQ(line_of({.hosts = parse_hosts("a:2,b:2"), .launcher = "/usr/bin/srun", .bind = "cores"}, machine_of(2)),
            "/usr/bin/srun --ntasks=4 --mpi=pmix --kill-on-bad-exit=1 --quit-on-interrupt --nodelist=a,b "
            "--ntasks-per-node=2 --cpu-bind=cores");
  EXPECT_THROW(line_of({.hosts = parse_hosts("a:2,b:1"), .launcher = "srun"}, machine_of(2)), ConfigError);
}

TEST(LauncherArguments, this_program_starts_ranks_over_gloo) {
  LaunchSettings settings{.ranks = 2, .launcher = "/bin/penstock", .over_gloo = true, .master_port = 12345};
  EXPECT_EQ(line_of(settings, machine_of(4)), "/bin/penstock launch-local -n 2 --master-port 12345 --cores 2");
  EXPECT_EQ(line_of(settings, machine_of(1)), "/bin/penstock launch-local -n 2 --master-port 12345 --cores 0");
  settings.bind = "none";
  EXPECT_EQ(line_of(settings, machine_of(4)), "/bin/penstock launch-local -n 2 --master-port 12345 --cores 0");
  settings.launcher = "/opt/srun";  // a copy of this program
  EXPECT_FALSE(is_srun(settings));
}

TEST(LauncherArguments, refuses_a_job_without_ranks) {
  EXPECT_THROW(rank_count({.ranks = -1}), ConfigError);
  EXPECT_THROW(rank_count({}), ConfigError);
  EXPECT_EQ(rank_count({.ranks = 3, .hosts = parse_hosts("a:2")}), 3);
}

TEST(LauncherArguments, quotes_for_a_shell) {
  EXPECT_EQ(as_shell_line({"a", "", "b c", "it's", "--x=1,2"}), "a '' 'b c' 'it'\\''s' --x=1,2");
}

TEST(LauncherArguments, this_machine_has_a_core) { EXPECT_GE(this_machine().cores, 1); }

}  // namespace
}  // namespace penstock::launcher_arguments_test
