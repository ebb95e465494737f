#include "penstock/transport/launch_environment.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "penstock/base/error.h"

namespace penstock {
namespace {

std::optional<int> number(const Environment& environment, const char* name) {
  const char* value = environment(name);
  if (!value || !*value) return std::nullopt;
  const std::string_view text(value);
  int result = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result);
  require<ConfigError>(error == std::errc{} && end == text.data() + text.size() && result >= 0, "the environment's ",
                       name, " is not a number: start the program through one launcher only");
  return result;
}

struct Variables {
  LaunchedAs::Kind kind;
  const char* launcher;
  const char* rank;
  const char* size;
};

/// Rank and size from one launcher's variables; none unless both are set.
std::optional<LaunchedAs> read(const Environment& environment, const Variables& names) {
  const auto rank = number(environment, names.rank);
  const auto size = number(environment, names.size);
  if (!rank || !size) return std::nullopt;
  require<ConfigError>(*rank < *size, "the environment says ", names.rank, " = ", *rank, " but ", names.size, " = ",
                       *size, ": ranks count from 0; start the program through one launcher only");
  return LaunchedAs{names.kind, *rank, *size, say(names.launcher, " (", names.size, " = ", *size, ")")};
}

bool has(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value && *value;
}

std::optional<LaunchedAs> read_mpi(const Environment& environment) {
  using enum LaunchedAs::Kind;
  for (const Variables& names :
       {Variables{mpi, "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        Variables{mpi, "mpiexec", "PMI_RANK", "PMI_SIZE"}, Variables{mpi, "srun", "PMIX_RANK", "SLURM_STEP_NUM_TASKS"}})
    if (auto found = read(environment, names)) return found;
  return std::nullopt;
}

std::optional<LaunchedAs> read_torchrun(const Environment& environment) {
  using enum LaunchedAs::Kind;
  const char* launcher = logs_every_rank(environment) ? "penstock launch" : "torchrun";
  if (auto found = read(environment, {torchrun, launcher, "RANK", "WORLD_SIZE"})) return found;
  // An srun step of several tasks without PMI. (A batch script itself only has SLURM_NTASKS.)
  if (!environment("SLURM_STEP_ID")) return std::nullopt;
  const int tasks = number(environment, "SLURM_STEP_NUM_TASKS").value_or(1);
  if (tasks <= 1) return std::nullopt;
  require<ConfigError>(has(environment, "MASTER_ADDR"), "srun started ", tasks,
                       " tasks without PMI, so each would run the whole job: use srun --mpi=pmix or mpirun, or set "
                       "MASTER_ADDR and MASTER_PORT for the transport gloo");
  return read(environment, {torchrun, "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"});
}

}  // namespace

LaunchedAs launched_as(const Environment& environment) {
  const auto mpi = read_mpi(environment);
  auto torchrun = mpi && !has(environment, "RANK") ? std::nullopt : read_torchrun(environment);
  if (torchrun && torchrun->size == 1) torchrun.reset();  // a world of one process needs no launcher
  if (mpi && torchrun)
    require<ConfigError>(mpi->rank == torchrun->rank && mpi->size == torchrun->size, mpi->by, " says rank ", mpi->rank,
                         " of ", mpi->size, ", ", torchrun->by, " says rank ", torchrun->rank, " of ", torchrun->size,
                         ": start the program through one launcher only");
  return mpi ? *mpi : torchrun.value_or(LaunchedAs{});
}

LaunchedAs launched_as() {
  return launched_as([](const char* name) -> const char* { return std::getenv(name); });
}

Rendezvous rendezvous(const Environment& environment) {
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"})
    require<ConfigError>(has(environment, name), "the environment has no ", name,
                         ", which says where processes of the transport gloo meet: start them with torchrun, or set "
                         "MASTER_ADDR to a host's address and MASTER_PORT to a free port there, for all of them alike");
  Rendezvous store;
  store.address = environment("MASTER_ADDR");
  store.port = number(environment, "MASTER_PORT").value_or(0);
  require<ConfigError>(store.port > 0 && store.port < 65536,
                       "the environment's MASTER_PORT is not a port: take a number from 1 to 65535");
  const char* hosted = environment("TORCHELASTIC_USE_AGENT_STORE");
  store.is_open = hosted && std::string_view(hosted) == "True";
  store.restarts = number(environment, "TORCHELASTIC_RESTART_COUNT").value_or(0);
  return store;
}

std::map<std::string, std::string> local_mpi_settings(const Environment& environment) {
  const auto everywhere = number(environment, "OMPI_COMM_WORLD_SIZE");
  const auto here = number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE");
  if (!everywhere || everywhere != here) return {};
  std::map<std::string, std::string> settings{{"OMPI_MCA_btl", "self,vader"}};
  if (!environment("OMPI_MCA_mtl")) settings.emplace("OMPI_MCA_pml", "ob1");
  std::erase_if(settings, [&](const auto& setting) { return environment(setting.first.c_str()) != nullptr; });
  return settings;
}

bool logs_every_rank(const Environment& environment) {
  const char* value = environment(log_every_rank_variable);
  return value && std::string_view(value) == "1";
}

bool logs_every_rank() {
  return logs_every_rank([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace penstock
