// Low-rank adapters: what is trained, which names and files they have, and errors.
#include "penstock/hf/lora.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "penstock/base/error.h"
#include "penstock/checkpoint/checkpoint_reader.h"
#include "penstock/checkpoint/safetensors.h"
#include "penstock/hf/weights.h"
#include "penstock/pipeline/pipeline.h"
#include "penstock/train/optimizers.h"
#include "penstock/zoo/gpt.h"
#include "tests/base/error_text.h"
#include "tests/support/temporary_folder.h"

namespace penstock::test::lora_test {
namespace {

using hf::LoraOptions;

constexpr GptOptions model{.vocabulary = 11, .context = 8, .width = 8, .layers = 2, .heads = 2, .dropout = 0};
const LoraOptions two{.rank = 2, .alpha = 3, .targets = {"qkv", "down"}};

struct Trained {
  std::vector<double> losses;
  StateDict before, after;
};

/// Three steps of a Gpt on `stages` stages, with adapters if there are options.
Trained train(int stages, const std::optional<LoraOptions>& options, const std::string& schedule = "1f1b") {
  Gpt gpt(model);
  if (options) {
    LoraOptions found = *options;
    hf::add_lora(gpt, found);
  }
  World world({.stages = stages});
  Pipeline pipeline(world, gpt, next_token_loss, {.micro_batches = 2, .schedule = schedule, .seed = 3});
  pipeline.optimize_with([](const auto& parameters) {
    return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.5));
  });
  Trained trained;
  trained.before = pipeline.state_dict();
  torch::manual_seed(1);
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor tokens = torch::randint(0, 11, {4, 9}, torch::kInt64);
    trained.losses.push_back(
        pipeline.train_step(tokens.narrow(1, 0, 8).contiguous(), tokens.narrow(1, 1, 8).contiguous()).loss());
  }
  trained.after = pipeline.state_dict();
  return trained;
}

TEST(Lora, trains_the_adapters_only) {
  const Trained trained = train(1, two);
  std::set<std::string> changed, adapters;
  for (const auto& item : trained.after) {
    if (!torch::equal(item.value(), trained.before[item.key()])) changed.insert(item.key());
    if (hf::is_lora(item.key())) adapters.insert(item.key());
  }
  EXPECT_EQ(adapters.size(), 8U);
  EXPECT_TRUE(adapters.contains("block1.feed_forward.down.lora_B.weight"));
  EXPECT_EQ(changed, adapters);
  EXPECT_EQ(trained.after["block0.attention.qkv.lora_A.weight"].sizes(), (std::vector<std::int64_t>{2, 8}));
  EXPECT_EQ(trained.after["block0.attention.qkv.lora_B.weight"].sizes(), (std::vector<std::int64_t>{24, 2}));
  EXPECT_EQ(trained.losses[0], train(1, std::nullopt).losses[0]) << "an adapter changes nothing at first";
  EXPECT_LT(trained.losses[2], trained.losses[0]);
}

TEST(Lora, frozen_weights_have_no_gradients_and_no_optimiser_state) {
  const TemporaryFolder folder("lora_state");
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    Gpt gpt(model);
    LoraOptions options = two;
    hf::add_lora(gpt, options);
    World world({.stages = 2});
    Pipeline pipeline(world, gpt, next_token_loss, {.micro_batches = 2, .schedule = schedule, .seed = 3});
    pipeline.optimize_with(adamw({}));
    pipeline.forward_backward(torch::ones({4, 8}, torch::kInt64), torch::ones({4, 8}, torch::kInt64));
    std::set<std::string> with_gradient;
    for (const auto& item : pipeline.local_gradients()) with_gradient.insert(item.key());
    for (const auto& item : pipeline.local_state_dict())
      EXPECT_TRUE(hf::is_lora(item.key()) || !item.value().grad().defined()) << schedule << " " << item.key();
    EXPECT_EQ(with_gradient.size(), 8U) << schedule;
    EXPECT_TRUE(std::ranges::all_of(with_gradient, hf::is_lora)) << schedule;
    pipeline.step();
    pipeline.save(folder / schedule);
    const auto checkpoint = newest_checkpoint(folder / schedule, CheckpointCheck::structure).checkpoint;
    std::size_t slots = 0;
    for (const FileRecord& file : checkpoint->manifest().files)
      for (const TensorRecord& tensor : file.tensors) {
        if (file.kind != FileKind::optimizer) continue;
        EXPECT_TRUE(hf::is_lora(tensor.name)) << tensor.name;
        ++slots;
      }
    EXPECT_GE(slots, 16U) << schedule;
  }
}

TEST(Lora, has_the_same_bits_for_every_partition_and_schedule) {
  const Trained alone = train(1, two);
  for (const char* schedule : {"1f1b", "zb-h1"})
    for (const int stages : {2, 3}) {
      const Trained cut = train(stages, two, schedule);
      EXPECT_EQ(cut.losses, alone.losses) << schedule << " " << stages;
      for (const auto& item : alone.after) EXPECT_TRUE(torch::equal(item.value(), cut.after[item.key()])) << item.key();
    }
}

TEST(Lora, files_are_those_of_peft) {
  const TemporaryFolder folder("lora");
  const std::string directory = folder / "adapter";
  const Trained trained = train(2, two);
  hf::save_adapter(directory, trained.after, two, "some/model");
  const WeightFile file = read_safetensors(directory + "/adapter_model.safetensors");
  EXPECT_EQ(file.tensors.size(), 8U);
  EXPECT_TRUE(torch::equal(file.tensors["base_model.model.block0.attention.qkv.lora_A.weight"],
                           trained.after["block0.attention.qkv.lora_A.weight"]));
  const LoraOptions read = hf::read_adapter_config(directory);
  EXPECT_EQ(read.rank, 2);
  EXPECT_EQ(read.alpha, 3);
  EXPECT_EQ(read.targets, (std::vector<std::string>{"qkv", "down"}));

  // The base model and the adapter as two files.
  write_safetensors(folder / "base.safetensors", {train(1, std::nullopt).before});
  const auto base = std::make_shared<const hf::MappedWeights>(folder / "base.safetensors");
  Gpt fresh(model), continued(model);
  LoraOptions options = read;
  hf::add_lora(fresh, options);
  fresh.take_weights_from(hf::with_adapter(base, nullptr));
  hf::add_lora(continued, options);
  continued.take_weights_from(hf::with_adapter(base, hf::read_adapter(directory)));
  const StateDict first = fresh.state_dict(), second = continued.state_dict();
  for (const auto& item : trained.after) {
    EXPECT_TRUE(torch::equal(item.value(), second[item.key()])) << item.key();
    EXPECT_TRUE(hf::is_lora(item.key()) || torch::equal(item.value(), first[item.key()])) << item.key();
  }
  EXPECT_EQ(first["block0.attention.qkv.lora_B.weight"].abs().sum().item<double>(), 0);
  EXPECT_TRUE(says(error_text<ConfigError>([&] { hf::save_adapter(directory, train(1, {}).after, two, ""); }),
                   "without adapters"));
}

TEST(Lora, refuses_what_it_cannot_adapt) {
  const auto refusal = [](const LoraOptions& options) { return error_text<ConfigError>([&] { train(1, options); }); };
  EXPECT_TRUE(says(refusal({.rank = 0}), "rank 0"));
  EXPECT_TRUE(says(refusal({.alpha = -1}), "alpha = -1"));
  EXPECT_TRUE(says(refusal({.targets = {}}), "for no layer"));
  EXPECT_TRUE(says(refusal({.targets = {"kqv"}}), "'kqv'", "qkv", "token_embedding"));
  EXPECT_TRUE(says(refusal({.targets = {"norm"}}), "LayerNorm"));
}

TEST(Lora, refuses_other_adapters) {
  const TemporaryFolder folder("lora_config");
  const auto refusal = [&](const std::string& config) {
    std::ofstream(folder / "adapter_config.json") << config;
    return error_text<Misuse>([&] { hf::read_adapter_config(folder.string()); });
  };
  EXPECT_TRUE(says(refusal("[]"), "adapter_config.json", "not a JSON object"));
  EXPECT_TRUE(says(refusal(R"({"peft_type": "IA3"})"), "'IA3'", "'LORA'"));
  EXPECT_TRUE(says(refusal(R"({"peft_type": "LORA", "bias": "all"})"), "'all'", "'none'"));
  EXPECT_TRUE(says(refusal(R"({"peft_type": "LORA", "use_dora": true})"), "'use_dora'"));
  EXPECT_TRUE(says(refusal(R"({"peft_type": "LORA", "init_lora_weights": "pissa"})"), "\"pissa\""));
  EXPECT_TRUE(says(refusal(R"({"peft_type": "LORA", "r": "8"})"), "lora_alpha"));
}

}  // namespace
}  // namespace penstock::test::lora_test
