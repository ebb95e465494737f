// The kernel selection as a value and a text, in builds with tuned kernels and without.
#include "penstock/kernels/kernel_selection.h"

#include <fstream>

#include <gtest/gtest.h>

#include "penstock/autotune/autotune.h"
#include "penstock/base/error.h"
#include "penstock/kernels/cpu_kernels.h"
#include "penstock/pipeline/pipeline.h"
#include "tests/base/error_text.h"

namespace penstock::test::kernel_selection_test {
using namespace kernels;
namespace {

TEST(Processor, multiplies_bf16_with_instructions_for_it) {
  const std::string path = testing::TempDir() + "cpuinfo";
  for (const auto& [flags, multiplies] : {std::pair("fpu avx512f avx512_bf16 amx_tile", true),
                                          {"asimd bf16 i8mm", true},
                                          {"fpu avx512f avx512_vnni", false}}) {
    std::ofstream(path) << "model name\t: Some Processor\nflags\t\t: " << flags << "\n";
    EXPECT_EQ(multiplies_bf16(path), multiplies) << flags;
  }
}

TEST(KernelSelection, round_trips_through_its_text) {
  KernelSelection selection = KernelSelection::tuned();
  const ConvolutionShape shape{3, 64, {32, 30}, {{7, 5}, {2, 1}, {3, 2}, {1, 2}}};
  selection.choose(shape, Product::weight_grad, ConvolutionKernel::kernel_positions);
  selection.choose(LinearShape{784, 1024}, LinearKernel::bias_apart);
  selection.choose(LinearShape{64, 10}, LinearKernel::no_pack);
  EXPECT_EQ(KernelSelection::from_text(selection.to_text()), selection);
  EXPECT_EQ(KernelSelection::from_text(KernelSelection::fixed().to_text()), KernelSelection::fixed());
  EXPECT_EQ(selection.kernel_for(shape, Product::weight_grad), ConvolutionKernel::kernel_positions);
  EXPECT_EQ(selection.kernel_for(shape, Product::forward), ConvolutionKernel::library);
  EXPECT_EQ(selection.kernel_for(LinearShape{784, 1024}), LinearKernel::bias_apart);
  EXPECT_NE(selection.fingerprint(), KernelSelection::tuned().fingerprint());
  EXPECT_TRUE(selection.has(LinearKernel::no_pack));
  EXPECT_FALSE(selection.has(LinearKernel::library));
  EXPECT_TRUE(says(error_text<DataError>([] { KernelSelection::from_text("tuned\nlinear 8 8 fast\n"); }), "'fast'"));
}

TEST(KernelSelection, is_given_for_tuned_kernels) {
  EXPECT_FALSE(kernels_from(Kernels::fixed, "")->is_tuned());
  if (!has_cpu_kernels()) GTEST_SKIP() << "this build has no tuned kernels";
  EXPECT_TRUE(says(error_text<ConfigError>([] { kernels_from(Kernels::tuned, ""); }), "autotune()"));
  EXPECT_TRUE(kernels_from(Kernels::tuned, "tuned\n")->is_tuned());
  if (has_kernel(LinearKernel::no_pack)) GTEST_SKIP() << "this build has BLIS";
  EXPECT_TRUE(
      says(error_text<ConfigError>([] { kernels_from(Kernels::tuned, "tuned\nlinear 8 8 streamed\n"); }), "BLIS"));
}

struct OneLayer : Cell {
  Layer layer = add("layer", [] { return torch::nn::Linear(4, 4); });
  Value forward(Value x) override { return layer(x); }
};

TEST(BuildWithoutTunedKernels, refuses_them) {
  if (has_cpu_kernels()) GTEST_SKIP() << "this build has tuned kernels";
  for (const LinearKernel kernel : {LinearKernel::bias_apart, LinearKernel::no_pack})
    EXPECT_FALSE(can_compute(kernel, torch::ones({2, 4}), /*has_bias=*/true));
  EXPECT_FALSE(has_kernel(ConvolutionKernel::columns, Product::forward));
  OneLayer network;
  World world({.stages = 1});
  PipelineOptions options;
  options.kernels = Kernels::tuned;
  const char* reason = "PENSTOCK_CPU_KERNELS=OFF";
  EXPECT_TRUE(says(error_text<ConfigError>([&] {
                     autotune(world, network, squared_error, options, {.sample = torch::ones({2, 4})});
                   }),
                   reason));
  options.kernel_selection = "tuned\nlinear 4 4 bias_apart\n";
  EXPECT_TRUE(says(error_text<ConfigError>([&] { Pipeline(world, network, squared_error, options); }), reason));
}

}  // namespace
}  // namespace penstock::test::kernel_selection_test
