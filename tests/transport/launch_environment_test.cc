#include "penstock/transport/launch_environment.h"

#include <map>

#include <gtest/gtest.h>

#include "penstock/base/error.h"

namespace penstock::launch_environment_test {
namespace {

LaunchedAs launched(const std::map<std::string, std::string>& variables) {
  return launched_as([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

void expect(const LaunchedAs& got, LaunchedAs::Kind kind, int rank, int size) {
  EXPECT_EQ(got.kind, kind);
  EXPECT_EQ(got.rank, rank);
  EXPECT_EQ(got.size, size);
}

std::string error_text(const std::map<std::string, std::string>& variables) {
  try {
    launched(variables);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(LaunchEnvironment, processes_of_one_host_use_shared_memory_alone) {
  using Variables = std::map<std::string, std::string>;
  const auto settings = [](const Variables& variables) {
    return local_mpi_settings([&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  const Variables local{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
  const auto with = [&](const char* name, const char* value) {
    Variables variables = local;
    variables[name] = value;
    return settings(variables);
  };
  const Variables transport{{"OMPI_MCA_btl", "self,vader"}}, layer{{"OMPI_MCA_pml", "ob1"}};
  EXPECT_EQ(settings(local), (Variables{*transport.begin(), *layer.begin()}));
  EXPECT_EQ(with("OMPI_MCA_btl", "self,tcp"), layer);
  EXPECT_EQ(with("OMPI_MCA_pml", "cm"), transport);
  EXPECT_EQ(with("OMPI_MCA_mtl", "psm2"), transport);
  EXPECT_EQ(with("OMPI_COMM_WORLD_LOCAL_SIZE", "2"), Variables{});
  for (const Variables& other : {Variables{}, Variables{{"PMI_SIZE", "2"}}}) EXPECT_EQ(settings(other), Variables{});
}

TEST(LaunchEnvironment, without_a_launcher) { expect(launched({{"PATH", "/bin"}}), LaunchedAs::Kind::alone, 0, 1); }

TEST(LaunchEnvironment, open_mpi) {
  const auto got = launched({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "2"}});
  expect(got, LaunchedAs::Kind::mpi, 2, 4);
  EXPECT_EQ(got.by, "mpirun (OMPI_COMM_WORLD_SIZE = 4)");
}

TEST(LaunchEnvironment, a_world_of_one_under_mpirun_is_still_mpi) {
  expect(launched({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}), LaunchedAs::Kind::mpi, 0, 1);
}

TEST(LaunchEnvironment, other_process_managers) {
  expect(launched({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}), LaunchedAs::Kind::mpi, 1, 2);
  expect(launched({{"PMIX_RANK", "3"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "8"}}), LaunchedAs::Kind::mpi,
         3, 8);
}

TEST(LaunchEnvironment, a_batch_script_is_not_a_step) {
  expect(launched({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "7"}}), LaunchedAs::Kind::alone, 0,
         1);
}

TEST(LaunchEnvironment, tasks_that_cannot_connect_are_an_error) {
  const auto text = error_text({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "1"}});
  EXPECT_NE(text.find("srun started 4 tasks without PMI"), std::string::npos) << text;
  expect(launched({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}), LaunchedAs::Kind::alone, 0, 1);
}

TEST(LaunchEnvironment, tasks_without_pmi_meet_where_the_environment_says) {
  const std::map<std::string, std::string> task{
      {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "1"}, {"MASTER_ADDR", "node1"}};
  expect(launched(task), LaunchedAs::Kind::torchrun, 1, 4);
  EXPECT_EQ(launched(task).by, "srun (SLURM_STEP_NUM_TASKS = 4)");
  // A batch script's own process, and torchrun within a step of one task per node.
  auto within = task;
  within.insert({{"RANK", "3"}, {"WORLD_SIZE", "8"}});
  expect(launched(within), LaunchedAs::Kind::torchrun, 3, 8);
}

TEST(LaunchEnvironment, rendezvous_of_torchrun) {
  const auto meeting = [](const std::map<std::string, std::string>& variables) {
    return rendezvous([&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  const Rendezvous plain = meeting({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(plain.address, "node1");
  EXPECT_EQ(plain.port, 29500);
  EXPECT_FALSE(plain.is_open);
  EXPECT_EQ(plain.restarts, 0);
  const Rendezvous held = meeting({{"MASTER_ADDR", "node1"},
                                   {"MASTER_PORT", "29500"},
                                   {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                   {"TORCHELASTIC_RESTART_COUNT", "2"}});
  EXPECT_TRUE(held.is_open);
  EXPECT_EQ(held.restarts, 2);
  EXPECT_THROW(meeting({{"MASTER_PORT", "29500"}}), ConfigError);
  EXPECT_THROW(meeting({{"MASTER_ADDR", "node1"}}), ConfigError);
  for (const char* port : {"0", "65536", "-1", "x"})
    EXPECT_THROW(meeting({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", port}}), ConfigError) << port;
}

TEST(LaunchEnvironment, torchrun) {
  expect(launched({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), LaunchedAs::Kind::torchrun, 1, 2);
  expect(launched({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), LaunchedAs::Kind::alone, 0, 1);
  expect(launched({{"WORLD_SIZE", "2"}}), LaunchedAs::Kind::alone, 0, 1);
  EXPECT_EQ(launched({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).by, "torchrun (WORLD_SIZE = 2)");
  EXPECT_EQ(launched({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {log_every_rank_variable, "1"}}).by,
            "penstock launch (WORLD_SIZE = 2)");
}

TEST(LaunchEnvironment, mpi_takes_precedence_and_must_agree_with_torchrun) {
  std::map<std::string, std::string> both{
      {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}};
  expect(launched(both), LaunchedAs::Kind::mpi, 1, 2);
  both["RANK"] = "0";
  EXPECT_NE(error_text(both).find("says rank 1 of 2, torchrun (WORLD_SIZE = 2) says rank 0 of 2"), std::string::npos);
  both["WORLD_SIZE"] = "1";  // left over from a single-process start: no contradiction
  expect(launched(both), LaunchedAs::Kind::mpi, 1, 2);
}

// By their names alone, because values of the environment may be secrets.
TEST(LaunchEnvironment, invalid_variables_are_named) {
  for (const std::string value : {"one", "-1"}) {
    const std::string text = error_text({{"RANK", value}, {"WORLD_SIZE", "2"}});
    EXPECT_NE(text.find("the environment's RANK is not a number"), std::string::npos) << text;
    EXPECT_EQ(text.find("'" + value + "'"), std::string::npos) << text;
  }
  EXPECT_NE(error_text({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "2"}})
                .find("OMPI_COMM_WORLD_RANK = 2 but OMPI_COMM_WORLD_SIZE = 2"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock::launch_environment_test
