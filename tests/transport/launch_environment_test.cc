#include "penstock/transport/joining/launch_environment.h"

#include <cstdlib>
#include <map>
#include <optional>

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::launch_environment_test {
namespace {

using namespace joining;
using Variables = std::map<std::string, std::string>;

/// `variables` must live as long as the result.
Environment environment_of(const Variables& variables) {
  return [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

LaunchedAs launched(const Variables& variables, AskedTransport asked = AskedTransport::any) {
  return launched_as(asked, environment_of(variables));
}

void expect(const LaunchedAs& got, LaunchedAs::Kind kind, int rank, int size) {
  EXPECT_EQ(got.kind, kind);
  EXPECT_EQ(got.rank, rank);
  EXPECT_EQ(got.size, size);
}

std::string error_text(const Variables& variables, AskedTransport asked = AskedTransport::any) {
  return test::error_text<ConfigError>([&] { launched(variables, asked); });
}

TEST(LaunchEnvironment, processes_of_one_host_use_shared_memory_alone) {
  const auto settings = [](const Variables& variables) { return local_mpi_settings(environment_of(variables)); };
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
  const Variables task{
      {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "1"}, {"MASTER_ADDR", "node1"}};
  expect(launched(task), LaunchedAs::Kind::torchrun, 1, 4);
  EXPECT_EQ(launched(task).by, "srun (SLURM_STEP_NUM_TASKS = 4)");
  // A batch script's own process, and torchrun within a step of one task per node.
  auto within = task;
  within.insert({{"RANK", "3"}, {"WORLD_SIZE", "8"}});
  expect(launched(within), LaunchedAs::Kind::torchrun, 3, 8);
}

TEST(LaunchEnvironment, rendezvous_of_torchrun) {
  const auto meeting = [](const Variables& variables) { return rendezvous(environment_of(variables)); };
  const Rendezvous plain = meeting({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(plain.address, "node1");
  EXPECT_EQ(plain.port, 29500);
  EXPECT_FALSE(plain.is_open);
  const Rendezvous held =
      meeting({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_TRUE(held.is_open);
  EXPECT_THROW(meeting({{"MASTER_PORT", "29500"}}), ConfigError);
  EXPECT_THROW(meeting({{"MASTER_ADDR", "node1"}}), ConfigError);
  for (const char* port : {"0", "65536", "-1", "x"})
    EXPECT_THROW(meeting({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", port}}), ConfigError) << port;
}

TEST(LaunchEnvironment, torchrun) {
  expect(launched({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), LaunchedAs::Kind::torchrun, 1, 2);
  expect(launched({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), LaunchedAs::Kind::alone, 0, 1);
  EXPECT_EQ(launched({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).by, "torchrun (WORLD_SIZE = 2)");
  EXPECT_EQ(launched({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {log_every_rank_variable, "1"}}).by,
            "penstock launch (WORLD_SIZE = 2)");
}

TEST(LaunchEnvironment, mpi_takes_precedence_and_must_agree_with_torchrun) {
  Variables both{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}};
  expect(launched(both), LaunchedAs::Kind::mpi, 1, 2);
  both["RANK"] = "0";
  EXPECT_NE(error_text(both).find("says rank 1 of 2, torchrun (WORLD_SIZE = 2) says rank 0 of 2"), std::string::npos);
  both["WORLD_SIZE"] = "1";  // left over from a single-process start: no contradiction
  expect(launched(both), LaunchedAs::Kind::mpi, 1, 2);
}

TEST(LaunchEnvironment, half_an_identity_is_an_error) {
  EXPECT_EQ(
      error_text({{"RANK", "1"}}),
      "the environment has RANK = 1 but no WORLD_SIZE, so each process would run the whole job: set both, or unset "
      "RANK");
  const auto expect_refused = [](const std::string& set, const std::string& value, const std::string& missing) {
    for (Variables variables : {Variables{}, Variables{{missing, ""}}, Variables{{"RANK", "0"}, {"WORLD_SIZE", "1"}}}) {
      if (variables.contains(set) || (variables.contains(missing) && !variables[missing].empty())) continue;
      variables[set] = value;
      const std::string wanted = say("the environment has ", set, " = ", value, " but no ", missing, ", so each");
      EXPECT_EQ(error_text(variables).substr(0, wanted.size()), wanted);
    }
  };
  expect_refused("RANK", "1", "WORLD_SIZE");
  expect_refused("WORLD_SIZE", "2", "RANK");
  expect_refused("OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE");
  expect_refused("OMPI_COMM_WORLD_SIZE", "2", "OMPI_COMM_WORLD_RANK");
  expect_refused("PMI_RANK", "3", "PMI_SIZE");
  expect_refused("PMI_SIZE", "2", "PMI_RANK");
  expect_refused("PMIX_RANK", "1", "SLURM_STEP_NUM_TASKS");
  EXPECT_NE(error_text({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"MASTER_ADDR", "node1"}})
                .find("SLURM_STEP_NUM_TASKS = 4 but no SLURM_PROCID"),
            std::string::npos);
  // Of a launcher with PMIx other than srun MPI knows the rest, if it is asked for.
  expect(launched({{"PMIX_RANK", "1"}}, AskedTransport::mpi), LaunchedAs::Kind::alone, 0, 1);
  EXPECT_NE(error_text({{"RANK", "1"}}, AskedTransport::mpi), "[no error]");
  EXPECT_NE(error_text({{"RANK", "1"}}, AskedTransport::gloo), "[no error]");
}

TEST(LaunchEnvironment, half_an_identity_that_tells_of_one_process_is_none) {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})
    expect(launched({{name, "0"}}), LaunchedAs::Kind::alone, 0, 1);
  for (const char* name : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    expect(launched({{name, "1"}}), LaunchedAs::Kind::alone, 0, 1);
}

TEST(LaunchEnvironment, a_whole_identity_decides_beside_a_half_one) {
  const Variables mpi{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "1"}};
  for (const Variables& half : {Variables{{"RANK", "0"}}, Variables{{"RANK", "1"}}, Variables{{"WORLD_SIZE", "8"}}}) {
    Variables variables = mpi;
    variables.insert(half.begin(), half.end());
    expect(launched(variables), LaunchedAs::Kind::mpi, 1, 2);
  }
  const Variables one{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}, {"RANK", "1"}};
  EXPECT_NE(error_text(one).find("RANK = 1 but no WORLD_SIZE"), std::string::npos);
}

TEST(LaunchEnvironment, a_world_of_one_by_mpi_yields_to_torchrun) {
  for (Variables variables : {Variables{{"PMIX_RANK", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}},
                              Variables{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}},
                              Variables{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}}) {
    expect(launched(variables), LaunchedAs::Kind::mpi, 0, 1);
    variables.insert({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
    expect(launched(variables), LaunchedAs::Kind::torchrun, 1, 2);
  }
}

TEST(LaunchEnvironment, torchrun_decides_for_gloo_within_a_job_of_mpi) {
  // mpirun starts torchrun once on each of two hosts, and torchrun two processes.
  const Variables nested{
      {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"RANK", "3"}, {"WORLD_SIZE", "4"}};
  expect(launched(nested, AskedTransport::gloo), LaunchedAs::Kind::torchrun, 3, 4);
  for (const AskedTransport asked : {AskedTransport::any, AskedTransport::mpi})
    EXPECT_NE(error_text(nested, asked).find("says rank 1 of 2, torchrun (WORLD_SIZE = 4) says rank 3 of 4"),
              std::string::npos);
  Variables left_over = nested;
  left_over.insert_or_assign("RANK", "0");
  left_over.insert_or_assign("WORLD_SIZE", "1");
  expect(launched(left_over, AskedTransport::gloo), LaunchedAs::Kind::mpi, 1, 2);
}

TEST(LaunchEnvironment, the_launcher_of_a_world_of_one_is_known) {
  EXPECT_FALSE(launched({}).has_launcher);
  const LaunchedAs one = launched({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_TRUE(one.has_launcher);
  EXPECT_EQ(one.by, "torchrun (WORLD_SIZE = 1)");
  EXPECT_TRUE(launched({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}).has_launcher);
}

TEST(LaunchEnvironment, messages_name_the_command_of_the_launcher) {
  Variables by_torchrun{{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  Variables by_mpirun{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  EXPECT_EQ(launched({}).start, "mpirun -n");
  EXPECT_EQ(launched(by_torchrun).start, "torchrun --nproc-per-node");
  EXPECT_EQ(launched(by_mpirun).start, "mpirun -n");
  EXPECT_EQ(launched({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).start, "mpiexec -n");
  EXPECT_EQ(launched({{"PMIX_RANK", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}).start, "srun -n");
  EXPECT_EQ(
      launched({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "1"}, {"MASTER_ADDR", "node1"}})
          .start,
      "srun -n");
  for (Variables* variables : {&by_torchrun, &by_mpirun}) {
    variables->emplace(log_every_rank_variable, "1");
    EXPECT_EQ(launched(*variables).start, "penstock launch -n");
  }
}

TEST(LaunchEnvironment, every_rank_with_a_log_of_its_own_prints) {
  const auto logs = [](const Variables& variables) { return logs_every_rank(environment_of(variables)); };
  const Variables by_mpirun{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  Variables with_files = by_mpirun;
  with_files["OMPI_MCA_orte_output_filename"] = "logs:nocopy";
  EXPECT_FALSE(logs(by_mpirun));
  EXPECT_TRUE(logs(with_files));
  EXPECT_EQ(launched(with_files).start, "mpirun -n") << "`penstock launch` has not started it";
  with_files[log_every_rank_variable] = "0";
  EXPECT_FALSE(logs(with_files));
  EXPECT_TRUE(logs({{log_every_rank_variable, "1"}}));
}

TEST(LaunchEnvironment, the_variables_of_msrun_are_ignored) {
  expect(launched({{"MS_ROLE", "MS_WORKER"},
                   {"MS_SCHED_HOST", "127.0.0.1"},
                   {"MS_SCHED_PORT", "8118"},
                   {"MS_WORKER_NUM", "8"},
                   {"MS_NODE_ID", "3"},
                   {"RANK_ID", "3"},
                   {"RANK_SIZE", "8"},
                   {"DEVICE_ID", "3"}}),
         LaunchedAs::Kind::alone, 0, 1);
}

TEST(LaunchEnvironment, the_local_rank_is_that_of_the_launcher_that_decides) {
  const auto local_rank = [](const Variables& variables) { return launched_local_rank(environment_of(variables)); };
  EXPECT_EQ(local_rank({}), std::nullopt);
  EXPECT_EQ(local_rank({{"SLURM_LOCALID", "1"}}), 1);
  EXPECT_EQ(local_rank({{"LOCAL_RANK", "x"}, {"SLURM_LOCALID", "1"}}), 1);
  Variables variables{{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}};
  EXPECT_EQ(local_rank(variables), 1);
  // Those of mpirun, which has started torchrun.
  variables.insert({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
  EXPECT_EQ(local_rank(variables), 1);
  variables["OMPI_COMM_WORLD_SIZE"] = "2";
  EXPECT_EQ(local_rank(variables), 1);
  // Left over from a start of one process.
  variables["RANK"] = "0";
  variables["WORLD_SIZE"] = "1";
  EXPECT_EQ(local_rank(variables), 0);
}

TEST(LaunchEnvironment, a_process_of_mpi_gets_the_variables_of_torchrun) {
  const auto copies = [](const Variables& variables, int size = 2) {
    return rank_copies(environment_of(variables), WorldRank(1), size);
  };
  const Variables rank{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"PENSTOCK_RANK_COPIES", "1/2"}};
  Variables all = rank;
  all["LOCAL_RANK"] = "0";
  EXPECT_EQ(copies({}), rank);
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"})
    EXPECT_EQ(copies({{name, "0"}}), all) << name;
  EXPECT_EQ(copies({{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"LOCAL_RANK", "7"}}), rank);
  EXPECT_EQ(copies({}, 1), Variables{});
  // Half of another identity would contradict the rest.
  for (const char* name : {"RANK", "WORLD_SIZE"}) EXPECT_EQ(copies({{name, "1"}}), Variables{}) << name;
}

TEST(LaunchEnvironment, nobody_takes_copies_for_a_launcher) {
  const auto launched = [](const Variables& more, AskedTransport asked = AskedTransport::any) {
    Variables variables{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"PENSTOCK_RANK_COPIES", "1/2"}};
    for (const auto& [name, value] : more) variables[name] = value;
    return launched_as(asked, environment_of(variables));
  };
  // The process itself, and programs that it starts without MPI's variables.
  expect(launched({}), LaunchedAs::Kind::alone, 0, 1);
  expect(launched({}, AskedTransport::gloo), LaunchedAs::Kind::alone, 0, 1);
  // A program that it starts by another mpirun, or by torchrun.
  expect(launched({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "3"}}), LaunchedAs::Kind::mpi, 2, 3);
  expect(launched({{"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}}), LaunchedAs::Kind::torchrun, 1, 4);
  expect(launched({{"MASTER_ADDR", "a"}}), LaunchedAs::Kind::torchrun, 1, 2);
}

TEST(LaunchEnvironment, a_world_of_one_hides_no_other) {
  const Variables step{
      {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"MASTER_ADDR", "a"}};
  for (const auto& [rank, size] : {std::pair("RANK", "WORLD_SIZE"), std::pair("PMI_RANK", "PMI_SIZE")}) {
    Variables variables = step;
    variables[rank] = "0";
    variables[size] = "1";
    expect(launched_as(AskedTransport::any, environment_of(variables)), LaunchedAs::Kind::torchrun, 2, 4);
    variables["TORCHELASTIC_RUN_ID"] = "made for this task";
    expect(launched_as(AskedTransport::any, environment_of(variables)),
           std::string_view(rank) == "RANK" ? LaunchedAs::Kind::alone : LaunchedAs::Kind::mpi, 0, 1);
  }
  expect(launched_as(
             AskedTransport::any,
             environment_of(
                 {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}})),
         LaunchedAs::Kind::mpi, 1, 2);
}

TEST(LaunchEnvironment, a_number_of_processes_alone_says_nothing_to_programs_that_are_no_part_of_a_job) {
  const Variables number{{"WORLD_SIZE", "4"}};
  const Environment half = environment_of(number);
  EXPECT_THROW(launched_as(AskedTransport::any, half), ConfigError);
  expect(launched_as_whole(half), LaunchedAs::Kind::alone, 0, 1);
  EXPECT_THROW(launched_as_whole(environment_of({{"RANK", "1"}})), ConfigError) << "there is a rank 0 as well";
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
