// Weights in one file or in shards with an index: what is read, what is held in memory, and errors.
#include "penstock/hf/weights.h"

#include <array>
#include <fstream>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/checkpoint/safetensors.h"
#include "tests/base/error_text.h"
#include "tests/support/temporary_folder.h"

namespace penstock::hf_test::weights_test {
namespace {

using hf::MappedWeights;
using test::error_text;
using test::TemporaryFolder;
using test::write_bytes;

/// Two shards, "a.weight" and "b.weight" in the first, "c.weight" in the second, and their index.
struct Shards {
  TemporaryFolder folder{"hf_weights"};
  StateDict first{{"a.weight", torch::randn({3, 5})}, {"b.weight", torch::randn({7}).to(torch::kBFloat16)}};
  StateDict second{{"c.weight", torch::randn({2, 2}).to(torch::kFloat16)}};

  Shards() {
    write_safetensors(folder / "model-00001-of-00002.safetensors", {first});
    write_safetensors(folder / "model-00002-of-00002.safetensors", {second});
    write_index(R"({"weight_map": {"a.weight": "model-00001-of-00002.safetensors",
                                   "b.weight": "model-00001-of-00002.safetensors",
                                   "c.weight": "model-00002-of-00002.safetensors"}})");
  }
  void write_index(const std::string& text) const { write_bytes(folder / "model.safetensors.index.json", text); }
  std::string error() const {
    return error_text<DataError>([&] { MappedWeights weights(folder.string()); });
  }
};

TEST(MappedWeights, reads_all_shards) {
  const Shards shards;
  const MappedWeights weights(shards.folder.string());
  EXPECT_EQ(weights.names(), (std::vector<std::string>{"a.weight", "b.weight", "c.weight"}));
  for (const StateDict& shard : {shards.first, shards.second})
    for (const auto& item : shard) {
      EXPECT_EQ(weights.read(item.key()).scalar_type(), item->scalar_type()) << item.key();
      EXPECT_TRUE(weights.read(item.key()).equal(item.value())) << item.key();
    }
  EXPECT_FALSE(weights.read("d.weight").defined());
  EXPECT_EQ(weights.floating_types(), (std::set{TensorType::f32, TensorType::f16, TensorType::bf16}));
}

TEST(MappedWeights, reads_numbers_that_are_not_aligned) {
  const TemporaryFolder folder("hf_unaligned");
  const std::string json =
      R"({"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"y":{"dtype":"F32","shape":[2],"data_offsets":[3,11]}})";
  const std::uint64_t length = json.size();
  const std::array<float, 2> numbers{1.5F, -2.0F};
  const std::string prefix(reinterpret_cast<const char*>(&length), sizeof(length));
  const std::string data(reinterpret_cast<const char*>(numbers.data()), sizeof(numbers));
  write_bytes(folder / "odd.safetensors", prefix + json + "abc" + data);
  const MappedWeights weights(folder / "odd.safetensors");
  EXPECT_TRUE(weights.read("y").equal(torch::tensor({1.5F, -2.0F})));
  EXPECT_TRUE(weights.read("x").equal(torch::tensor({97, 98, 99}, torch::kUInt8)));
}

/// KiB of this process's memory that no file holds.
std::int64_t anonymous_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (std::int64_t kib = 0; word == "RssAnon:" && status >> kib) return kib;
  return -1;
}

TEST(MappedWeights, holds_no_copy) {
  const TemporaryFolder folder("hf_mapped");
  constexpr std::int64_t kib = 64 << 10;
  write_safetensors(folder / "large.safetensors", {{{"x", torch::ones({kib / 4, 1024})}}});
  const MappedWeights weights(folder / "large.safetensors");
  const std::int64_t before = anonymous_kib();
  ASSERT_GT(before, 0);
  torch::Tensor value = weights.read("x");
  EXPECT_EQ(value[kib / 4 - 1].sum().item<float>(), 1024);
  EXPECT_LT(anonymous_kib() - before, kib / 4);
}

TEST(MappedWeights, renames) {
  const Shards shards;
  const MappedWeights weights(shards.folder.string(), [](const std::string& name) { return "model." + name; });
  EXPECT_TRUE(weights.read("model.a.weight").equal(shards.first["a.weight"]));
  EXPECT_FALSE(weights.read("a.weight").defined());
  const std::string error =
      error_text<DataError>([&] { MappedWeights(shards.folder.string(), [](const std::string&) { return "x"; }); });
  EXPECT_TRUE(test::says(error, "'b.weight', which another tensor is, too: 'a.weight'")) << error;
}

TEST(MappedWeights, knows_what_follows_from_the_configuration) {
  const Shards shards;
  const MappedWeights weights(shards.folder.string());
  for (const char* name : {"lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq",
                           "transformer.h.0.attn.bias", "gpt_neox.layers.1.attention.masked_bias"})
    EXPECT_TRUE(weights.may_be_unused(name)) << name;
  for (const char* name : {"model.layers.0.self_attn.q_proj.bias", "model.norm.weight", "score.weight"})
    EXPECT_FALSE(weights.may_be_unused(name)) << name;
}

TEST(MappedWeights, names_what_is_missing_or_incomplete) {
  const Shards shards;
  const std::string folder = shards.folder.string(), index = shards.folder / "model.safetensors.index.json";
  const std::string second = "model-00002-of-00002.safetensors";
  EXPECT_EQ(shards.error(), "[no error]");

  const std::string whole = test::bytes_of_file(shards.folder / second);
  write_bytes(shards.folder / second, whole.substr(0, whole.size() - 3));
  EXPECT_EQ(shards.error(), "'" + (shards.folder / second) +
                                "' promises 8 bytes of data and holds 5: the copy is incomplete or damaged, fetch it "
                                "again");
  std::filesystem::remove(shards.folder / second);
  EXPECT_EQ(shards.error(), index + " lists '" + second + "', which " + folder + " does not have: fetch it again");

  shards.write_index(R"({"weight_map": {"z.weight": "model-00001-of-00002.safetensors"}})");
  EXPECT_EQ(shards.error(),
            index +
                " lists 'z.weight' in 'model-00001-of-00002.safetensors', which does not have it: fetch "
                "both again");
  shards.write_index(R"({"weight_map": {"z.weight": "../model.safetensors"}})");
  EXPECT_EQ(shards.error(), index + ": its \"weight_map\" has no file name for 'z.weight'");
  shards.write_index("[]");
  EXPECT_EQ(shards.error(), index + ": it has no \"weight_map\" of tensors and their files");
  std::filesystem::remove(index);
  EXPECT_EQ(shards.error(), folder +
                                ": it has neither model.safetensors nor model.safetensors.index.json: pass a "
                                "Hugging Face directory with weights in safetensors files");
}

}  // namespace
}  // namespace penstock::hf_test::weights_test
