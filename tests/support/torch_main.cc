// The main() of the test programs that use LibTorch.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "penstock/base/process.h"

int main(int argc, char** argv) {
  penstock::exit_without_destroying_libraries();
  at::set_num_threads(1);  // as ranks have: sums of plain loops depend on it
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
