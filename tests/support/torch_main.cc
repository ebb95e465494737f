// The main() of the test programs that use LibTorch.
#include <gtest/gtest.h>

#include "penstock/base/process.h"

int main(int argc, char** argv) {
  penstock::exit_without_destroying_libraries();
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
