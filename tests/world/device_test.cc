#include "penstock/world/device.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/model/dropout.h"
#include "penstock/penstock.h"
#include "tests/base/error_text.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::device_test {
namespace {

TEST(Device, cpu_is_the_device_of_every_rank) { EXPECT_EQ(device_of(torch::kCPU, 3), torch::kCPU); }

TEST(Device, unknown_names_are_an_error) {
  for (const char* name : {"gpu", "cuda:", "cuda:x", "cuda:-1", "", "cpu:0"})
    EXPECT_TRUE(says(error_text<ConfigError>([&] { device_named(name); }), "is none of cpu, cuda")) << name;
}

TEST(Device, ranks_share_the_gpus_in_turn) {
  const int there = static_cast<int>(torch::cuda::device_count());
  if (there == 0) {
    EXPECT_EQ(device_of(resolved_device(device_named("auto")), 1), torch::kCPU);
    EXPECT_TRUE(
        says(error_text<ConfigError>([] { device_of(torch::kCUDA, 0); }), "'cuda' is asked for", "sees 0 GPUs"));
    return;
  }
  EXPECT_EQ(device_of(torch::kCUDA, there), torch::Device(torch::kCUDA, 0));
  EXPECT_EQ(device_of(resolved_device(std::nullopt), there - 1),
            torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(there - 1)));
  EXPECT_THROW(device_of(torch::Device(say("cuda:", there)), 0), ConfigError);
}

struct Small : Cell {
  Layer in = add("in", [] { return torch::nn::Linear(6, 8); });
  Layer norm = add("norm", [] { return torch::nn::BatchNorm1d(8); });
  Layer drop = add("drop", [] { return Dropout(0.1); });
  Layer out = add("out", [] { return torch::nn::Linear(8, 6); });
  Layer back = add("back", [] { return torch::nn::Linear(6, 8); });
  Layer twin = add("twin", [] { return torch::nn::Linear(8, 6); });
  Small() { twin.tie("weight", out, "weight"); }
  Value forward(Value x) override { return twin(back(out(drop(relu(norm(in(x))))))); }
};

StateDict train(torch::Device device, int stages) {
  PipelineOf<Small> pipeline({.stages = stages},
                             {.micro_batches = 2, .clip_norm = 0.5, .device = device, .partition = "uniform"}, adam());
  torch::manual_seed(1);
  const torch::Tensor inputs = torch::randn({8, 6});
  for (int step = 0; step < 3; ++step) pipeline.train_step(inputs, torch::arange(8) % 6).wait();
  EXPECT_EQ(pipeline.infer({inputs}).output().sizes(), (std::vector<std::int64_t>{8, 6}));
  return pipeline.state_dict();
}

TEST(Device, is_chosen_unless_it_is_named) {
  EXPECT_EQ(PipelineOptions().device, std::nullopt);
  const torch::Device there = torch::cuda::device_count() > 0 ? torch::kCUDA : torch::kCPU;
  EXPECT_EQ(resolved_device(device_named("auto")), there);
  for (const char* name : {"cpu", "cuda", "cuda:1"}) EXPECT_EQ(resolved_device(device_named(name)).str(), name);
  PipelineOf<Small> pipeline({.stages = 2}, {.micro_batches = 2, .partition = "uniform"});
  EXPECT_EQ(pipeline.options().device, there) << "the resolved device, not none";
}

TEST(Device, a_gpu_trains_as_the_cpu_does) {
  if (torch::cuda::device_count() == 0) GTEST_SKIP() << "no GPU here";
  const auto on_cpu = train(torch::kCPU, 1);
  for (const int stages : {1, 2, 3})
    for (const auto& [name, value] : train(torch::kCUDA, stages).pairs())
      EXPECT_TRUE(torch::allclose(value, on_cpu[name], 1e-3, 1e-4)) << name << " p " << stages;
}

}  // namespace
}  // namespace penstock::test::device_test
