// Linked with stubs.cc in every build, for a build without any library.
#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/transport/joined_processes.h"
#include "penstock/transport/transport.h"
#include "tests/base/error_text.h"

namespace penstock::stubs_test {
namespace {

TEST(Stubs, reports_that_this_build_has_no_mpi_and_what_to_do) {
  EXPECT_FALSE(mpi_available());
  const std::string text = test::error_text<ConfigError>([&] { open_mpi({}); });
  EXPECT_TRUE(text.starts_with("built without MPI (PENSTOCK_MPI=OFF")) << text;
  EXPECT_NE(text.find("-DPENSTOCK_MPI=ON, or use --transport gloo or threads"), std::string::npos) << text;
  EXPECT_THROW(mpi_processes(0), ConfigError);
}

TEST(Stubs, reports_that_this_build_has_no_gloo_and_what_to_do) {
  EXPECT_FALSE(gloo_available());
  const std::string text = test::error_text<ConfigError>([&] { open_gloo({}); });
  EXPECT_TRUE(text.starts_with("built without Gloo (PENSTOCK_GLOO=OFF")) << text;
  EXPECT_NE(text.find("-DPENSTOCK_GLOO=ON"), std::string::npos) << text;
  EXPECT_THROW(open_nccl({}), ConfigError);
}

TEST(Stubs, reports_that_this_build_has_no_nccl_and_what_to_do) {
  EXPECT_FALSE(nccl_available());
  const std::string text = test::error_text<ConfigError>([&] { nccl_groups(); });
  EXPECT_TRUE(text.starts_with("built without NCCL (PENSTOCK_NCCL=OFF")) << text;
  EXPECT_NE(text.find("or use --transport gloo"), std::string::npos) << text;
}

}  // namespace
}  // namespace penstock::stubs_test
