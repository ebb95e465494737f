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

std::optional<LaunchedAs> read_mpi(const Environment& environment) {
  using enum LaunchedAs::Kind;
  for (const Variables& names :
       {Variables{mpi, "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        Variables{mpi, "mpiexec", "PMI_RANK", "PMI_SIZE"}, Variables{mpi, "srun", "PMIX_RANK", "SLURM_STEP_NUM_TASKS"}})
    if (auto found = read(environment, names)) return found;
  // An srun step of several tasks without PMI cannot connect them. (A batch script itself only has SLURM_NTASKS.)
  const auto tasks = environment("SLURM_STEP_ID") ? number(environment, "SLURM_STEP_NUM_TASKS") : std::nullopt;
  require<ConfigError>(tasks.value_or(1) <= 1, "srun started ", tasks.value_or(1),
                       " tasks without PMI, so each would run the whole job: use srun --mpi=pmix, or mpirun");
  return std::nullopt;
}

}  // namespace

LaunchedAs launched_as(const Environment& environment) {
  const auto mpi = read_mpi(environment);
  auto torchrun = read(environment, {LaunchedAs::Kind::torchrun, "torchrun", "RANK", "WORLD_SIZE"});
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
