#include "penstock/world/world_options.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/transport/joining/launch_environment.h"
#include "tests/base/error_text.h"

namespace penstock::choose_transport_test {
namespace {

using namespace joining;
using enum TransportKind;

LaunchedAs launched(LaunchedAs::Kind kind, int size) {
  return {.kind = kind,
          .rank = size - 1,
          .size = size,
          .by = "a launcher",
          .has_launcher = kind != LaunchedAs::Kind::alone};
}
std::string refusal_of(TransportKind wanted, const LaunchedAs& launched, const BuiltTransports& built) {
  return test::error_text<ConfigError>([&] { choose_transport(wanted, launched, built); });
}
constexpr BuiltTransports both{.mpi = true, .gloo = true}, mpi_alone{.mpi = true}, gloo_alone{.gloo = true};

TEST(ChooseTransport, one_process_has_threads_unless_mpi_is_asked_for) {
  const LaunchedAs alone = launched(LaunchedAs::Kind::alone, 1);
  EXPECT_EQ(choose_transport(automatic, alone, both), threads);
  EXPECT_EQ(choose_transport(threads, alone, both), threads);
  EXPECT_EQ(choose_transport(mpi, alone, both), mpi);
  EXPECT_THROW(choose_transport(gloo, alone, both), ConfigError);
  EXPECT_THROW(choose_transport(nccl, alone, both), ConfigError);
}

TEST(ChooseTransport, the_only_process_of_a_launcher_needs_no_gloo) {
  LaunchedAs by_torchrun = launched(LaunchedAs::Kind::alone, 1);
  by_torchrun.has_launcher = true;
  for (const LaunchedAs& one : {by_torchrun, launched(LaunchedAs::Kind::mpi, 1)}) {
    EXPECT_EQ(choose_transport(gloo, one, both), threads);
    EXPECT_EQ(choose_transport(nccl, one, both), threads);
    EXPECT_EQ(choose_transport(threads, one, both), threads);
    EXPECT_EQ(choose_transport(mpi, one, both), mpi);
  }
  EXPECT_EQ(choose_transport(automatic, by_torchrun, both), threads);
  EXPECT_EQ(choose_transport(automatic, launched(LaunchedAs::Kind::mpi, 1), both), mpi);
}

TEST(ChooseTransport, a_build_without_mpi_does_not_join_processes_of_mpirun) {
  LaunchedAs two = launched(LaunchedAs::Kind::mpi, 2);
  two.by = "mpirun (OMPI_COMM_WORLD_SIZE = 2)";
  for (const TransportKind wanted : {automatic, mpi}) {
    EXPECT_EQ(refusal_of(wanted, two, gloo_alone),
              "rank 1 of 2 by mpirun (OMPI_COMM_WORLD_SIZE = 2), but this Penstock is built without MPI: use torchrun "
              "or penstock launch, or build with MPI (-DPENSTOCK_MPI=ON)");
    EXPECT_EQ(refusal_of(wanted, two, {}),
              "rank 1 of 2 by mpirun (OMPI_COMM_WORLD_SIZE = 2), but this Penstock is built without MPI and without "
              "Gloo: build with MPI (-DPENSTOCK_MPI=ON)");
  }
  EXPECT_EQ(choose_transport(gloo, two, gloo_alone), gloo);
  EXPECT_EQ(choose_transport(automatic, launched(LaunchedAs::Kind::mpi, 1), gloo_alone), threads);
}

TEST(ChooseTransport, processes_of_mpirun_are_joined_by_mpi_or_what_is_asked_for) {
  const LaunchedAs two = launched(LaunchedAs::Kind::mpi, 2);
  EXPECT_EQ(choose_transport(automatic, two, both), mpi);
  EXPECT_EQ(choose_transport(gloo, two, both), gloo);
  EXPECT_EQ(choose_transport(nccl, two, both), nccl);
  EXPECT_THROW(choose_transport(threads, two, both), ConfigError);
  EXPECT_EQ(choose_transport(threads, launched(LaunchedAs::Kind::mpi, 1), both), threads);
}

TEST(ChooseTransport, processes_of_torchrun_are_joined_by_gloo_alone) {
  const LaunchedAs two = launched(LaunchedAs::Kind::torchrun, 2);
  EXPECT_EQ(choose_transport(automatic, two, both), gloo);
  EXPECT_EQ(choose_transport(gloo, two, gloo_alone), gloo);
  EXPECT_EQ(choose_transport(nccl, two, both), nccl);
  EXPECT_THROW(choose_transport(mpi, two, both), ConfigError);
  EXPECT_THROW(choose_transport(threads, two, both), ConfigError);
  EXPECT_THROW(choose_transport(automatic, two, mpi_alone), ConfigError);
}

TEST(AskedTransportOf, a_kind) {
  for (const TransportKind kind : {gloo, nccl}) EXPECT_EQ(asked_transport(kind), AskedTransport::gloo);
  EXPECT_EQ(asked_transport(mpi), AskedTransport::mpi);
  for (const TransportKind kind : {automatic, threads}) EXPECT_EQ(asked_transport(kind), AskedTransport::any);
}

}  // namespace
}  // namespace penstock::choose_transport_test
