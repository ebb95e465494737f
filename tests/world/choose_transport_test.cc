#include "penstock/world/choose_transport.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"

namespace penstock::choose_transport_test {
namespace {

using enum TransportKind;

LaunchedAs launched(LaunchedAs::Kind kind, int size) { return {kind, 0, size, "a launcher"}; }
constexpr BuiltTransports both{.mpi = true, .gloo = true}, mpi_alone{.mpi = true}, gloo_alone{.gloo = true};

TEST(ChooseTransport, one_process_has_threads_unless_mpi_is_asked_for) {
  const LaunchedAs alone = launched(LaunchedAs::Kind::alone, 1);
  EXPECT_EQ(choose_transport(automatic, alone, both), threads);
  EXPECT_EQ(choose_transport(threads, alone, both), threads);
  EXPECT_EQ(choose_transport(mpi, alone, both), mpi);
  EXPECT_THROW(choose_transport(gloo, alone, both), ConfigError);
  EXPECT_THROW(choose_transport(nccl, alone, both), ConfigError);
}

TEST(ChooseTransport, processes_of_mpirun_are_joined_by_what_the_build_has) {
  const LaunchedAs two = launched(LaunchedAs::Kind::mpi, 2);
  EXPECT_EQ(choose_transport(automatic, two, both), mpi);
  EXPECT_EQ(choose_transport(automatic, two, gloo_alone), gloo);
  EXPECT_EQ(choose_transport(automatic, two, {}), mpi);  // whose error says what is missing
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

}  // namespace
}  // namespace penstock::choose_transport_test
