#include "penstock/transport/joining/launch_environment.h"

#include <cstdlib>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock::joining {
namespace {

std::optional<int> number(const Environment& environment, const char* name) {
  const char* value = environment(name);
  if (!value || !*value) return std::nullopt;
  const auto result = number_of<int>(value);
  require<ConfigError>(result && *result >= 0, "the environment's ", name,
                       " is not a number: start the program through one launcher only");
  return result;
}

bool has(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value && *value;
}

struct Variables {
  LaunchedAs::Kind kind;
  const char* launcher;
  const char* start;
  const char* rank;
  const char* size;
};

constexpr const char* start_by_launch = "penstock launch -n";

bool is_set_to_1(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value && std::string_view(value) == "1";
}

bool is_rank_of_launch(const Environment& environment) { return is_set_to_1(environment, log_every_rank_variable); }

/// Rank and size from one launcher's variables; none unless both are set.
std::optional<LaunchedAs> read(const Environment& environment, const Variables& names) {
  if (!has(environment, names.rank) || !has(environment, names.size)) return std::nullopt;
  const int rank = number(environment, names.rank).value();
  const int size = number(environment, names.size).value();
  require<ConfigError>(rank < size, "the environment says ", names.rank, " = ", rank, " but ", names.size, " = ", size,
                       ": ranks count from 0; start the program through one launcher only");
  return LaunchedAs{.kind = names.kind,
                    .rank = rank,
                    .size = size,
                    .by = say(names.launcher, " (", names.size, " = ", size, ")"),
                    .start = is_rank_of_launch(environment) ? start_by_launch : names.start,
                    .has_launcher = true};
}

/// One variable of a pair, without the other one.
struct LoneVariable {
  const char* set;
  const char* missing;
  int least;  // the smallest value that tells of several processes
};

constexpr LoneVariable lone_pmix_rank{"PMIX_RANK", "SLURM_STEP_NUM_TASKS", 1};

void refuse(const Environment& environment, const LoneVariable& lone) {
  if (!has(environment, lone.set) || has(environment, lone.missing)) return;
  const int value = number(environment, lone.set).value();
  require<ConfigError>(value < lone.least, "the environment has ", lone.set, " = ", value, " but no ", lone.missing,
                       ", so each process would run the whole job: set both, or unset ", lone.set);
}

/// What a number of processes without a rank says: a job's process needs both; scripts may set one for others.
enum class LoneSizes { refused, ignored };

/// Throws ConfigError where half an identity tells of several processes.
void refuse_half_identities(const Environment& environment, AskedTransport asked, LoneSizes sizes) {
  for (const LoneVariable& lone : {LoneVariable{"RANK", "WORLD_SIZE", 1}, LoneVariable{"WORLD_SIZE", "RANK", 2},
                                   LoneVariable{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", 1},
                                   LoneVariable{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", 2},
                                   LoneVariable{"PMI_RANK", "PMI_SIZE", 1}, LoneVariable{"PMI_SIZE", "PMI_RANK", 2}})
    if (lone.least == 1 || sizes == LoneSizes::refused) refuse(environment, lone);
  // Launchers with PMIx other than srun tell the size to the MPI library alone, which is trusted if it is asked for.
  if (asked != AskedTransport::mpi) refuse(environment, lone_pmix_rank);
  if (has(environment, "SLURM_STEP_ID")) refuse(environment, {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", 2});
}

std::optional<LaunchedAs> read_mpi(const Environment& environment) {
  using enum LaunchedAs::Kind;
  std::optional<LaunchedAs> first;
  for (const Variables& names : {Variables{mpi, "mpirun", "mpirun -n", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                 Variables{mpi, "mpiexec", "mpiexec -n", "PMI_RANK", "PMI_SIZE"},
                                 Variables{mpi, "srun", "srun -n", "PMIX_RANK", "SLURM_STEP_NUM_TASKS"}})
    if (auto found = read(environment, names)) {
      if (found->size > 1) return found;  // a world of one may be around another launcher
      if (!first) first = std::move(found);
    }
  return first;
}

std::optional<LaunchedAs> read_torchrun(const Environment& environment) {
  const char* launcher = is_rank_of_launch(environment) ? "penstock launch" : "torchrun";
  return read(environment, {LaunchedAs::Kind::torchrun, launcher, "torchrun --nproc-per-node", "RANK", "WORLD_SIZE"});
}

/// An srun step of several tasks without PMI. (A batch script itself only has SLURM_NTASKS.)
std::optional<LaunchedAs> read_srun_without_pmi(const Environment& environment) {
  if (!environment("SLURM_STEP_ID")) return std::nullopt;
  const int tasks = number(environment, "SLURM_STEP_NUM_TASKS").value_or(1);
  if (tasks <= 1) return std::nullopt;
  require<ConfigError>(has(environment, "MASTER_ADDR"), "srun started ", tasks,
                       " tasks without PMI, so each would run the whole job: use srun --mpi=pmix or mpirun, or set "
                       "MASTER_ADDR and MASTER_PORT for the transport gloo");
  return read(environment, {LaunchedAs::Kind::torchrun, "srun", "srun -n", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"});
}

bool is_of_several(const std::optional<LaunchedAs>& launched) { return launched && launched->size > 1; }

/// Names the copies of export_rank() as such, "1/2", also to programs that this process starts.
constexpr const char* copies_variable = "PENSTOCK_RANK_COPIES";
std::string copies_text(std::string_view rank, std::string_view size) { return say(rank, "/", size); }

/// Without the copies of export_rank(). A launcher that has been started since then has set more than these.
Environment without_copies(const Environment& environment) {
  const bool may_be_copies = has(environment, copies_variable) && has(environment, "RANK") &&
                             has(environment, "WORLD_SIZE") && !has(environment, "MASTER_ADDR");
  if (!may_be_copies || copies_text(environment("RANK"), environment("WORLD_SIZE")) != environment(copies_variable))
    return environment;
  return [environment](const char* name) -> const char* {
    const std::string_view wanted(name);
    return wanted == "RANK" || wanted == "WORLD_SIZE" ? nullptr : environment(name);
  };
}

LaunchedAs launched(const Environment& given, AskedTransport asked, LoneSizes sizes) {
  const Environment environment = without_copies(given);
  const auto mpi = read_mpi(environment);
  auto torchrun = read_torchrun(environment);
  // A world of one that torchrun has made around this task is meant so; variables that are left over are not.
  if (!is_of_several(mpi) && !is_of_several(torchrun) && !has(environment, "TORCHELASTIC_RUN_ID"))
    if (auto srun = read_srun_without_pmi(environment)) torchrun = std::move(srun);
  if (is_of_several(mpi) && is_of_several(torchrun)) {
    const bool agree = mpi->rank == torchrun->rank && mpi->size == torchrun->size;
    if (!agree && asked == AskedTransport::gloo) return *torchrun;
    require<ConfigError>(agree, mpi->by, " says rank ", mpi->rank, " of ", mpi->size, ", ", torchrun->by, " says rank ",
                         torchrun->rank, " of ", torchrun->size,
                         ": start the program through one launcher only, or give --transport gloo for the latter");
  }
  // A world of one process, of which there may be one around each launcher, says nothing against another one.
  if (is_of_several(mpi)) return *mpi;
  if (is_of_several(torchrun)) return *torchrun;
  refuse_half_identities(environment, asked, sizes);
  if (mpi) return *mpi;
  if (torchrun) torchrun->kind = LaunchedAs::Kind::alone;
  return torchrun.value_or(LaunchedAs{});
}

/// Whether RANK and WORLD_SIZE, and so LOCAL_RANK, hold even if there are MPI's variables.
bool is_placed_by_torchrun(const Environment& environment) {
  try {
    return launched_as(AskedTransport::gloo, environment).kind == LaunchedAs::Kind::torchrun;
  } catch (const ConfigError&) {
    return false;  // the program has joined its processes itself: otherwise there would be no world
  }
}

}  // namespace

LaunchedAs launched_as(AskedTransport asked, const Environment& environment) {
  return launched(environment, asked, LoneSizes::refused);
}

LaunchedAs launched_as_whole(const Environment& environment) {
  return launched(environment, AskedTransport::any, LoneSizes::ignored);
}

std::optional<int> launched_local_rank(const Environment& environment) {
  constexpr const char* of_torchrun = "LOCAL_RANK";
  const bool is_torchrun = is_placed_by_torchrun(environment);
  for (const char* name : {is_torchrun ? of_torchrun : "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
                           "MPI_LOCALRANKID", of_torchrun, "SLURM_LOCALID"}) {
    const char* value = environment(name);
    const auto rank = number_of<int>(value ? value : "");
    if (rank && *rank >= 0) return rank;
  }
  return std::nullopt;
}

std::map<std::string, std::string> rank_copies(const Environment& environment, WorldRank rank, int size) {
  if (size < 2 || environment("RANK") || environment("WORLD_SIZE")) return {};
  const std::string own = std::to_string(rank.value()), all = std::to_string(size);
  std::map<std::string, std::string> copies{
      {"RANK", own}, {"WORLD_SIZE", all}, {copies_variable, copies_text(own, all)}};
  const auto local_rank = launched_local_rank(environment);
  if (local_rank && !environment("LOCAL_RANK")) copies.emplace("LOCAL_RANK", std::to_string(*local_rank));
  return copies;
}

void export_rank(WorldRank rank, int size) {
  for (const auto& [name, value] : rank_copies(own_environment, rank, size)) ::setenv(name.c_str(), value.c_str(), 1);
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
  if (has(environment, log_every_rank_variable)) return is_rank_of_launch(environment);
  return has(environment, "OMPI_MCA_orte_output_filename");
}

}  // namespace penstock::joining
