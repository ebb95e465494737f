// Networks whose layers take their initial values from a WeightSource: who reads what, casts, and errors.
#include "penstock/model/weight_source.h"

#include <map>
#include <mutex>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/model/model.h"
#include "penstock/pipeline/pipeline.h"
#include "tests/base/error_text.h"

namespace penstock::test::weight_source_test {
namespace {

using Named = std::map<std::string, torch::Tensor>;

/// Tensors in memory, and the names that each thread has read.
class MemorySource : public WeightSource {
 public:
  explicit MemorySource(Named tensors) : tensors_(std::move(tensors)) {}

  torch::Tensor read(const std::string& name) const override {
    const std::lock_guard lock(mutex_);
    reads_[std::this_thread::get_id()].insert(name);
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? torch::Tensor() : found->second;
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    return names;
  }
  std::string place() const override { return "weights.bin"; }
  bool may_lack(const std::string& name) const override { return name == optional; }
  bool may_be_unused(const std::string& name) const override { return name == unused; }

  /// The names read since the last call, by thread; a name twice if it was read twice.
  std::vector<std::multiset<std::string>> take_reads() {
    std::vector<std::multiset<std::string>> reads;
    for (auto& [thread, names] : reads_) reads.push_back(std::move(names));
    reads_.clear();
    return reads;
  }

  std::string optional, unused;

 private:
  Named tensors_;
  mutable std::mutex mutex_;
  mutable std::map<std::thread::id, std::multiset<std::string>> reads_;
};

/// Four layers, a tie over the whole network, and buffers.
struct Network : Cell {
  Layer embedding = add("embedding", [] { return torch::nn::Embedding(7, 4); });
  Layer first = add("first", [] { return torch::nn::Linear(4, 4); });
  Layer norm = add("norm", [] { return torch::nn::BatchNorm1d(4); });
  Layer head = add("head", [] { return torch::nn::Linear(torch::nn::LinearOptions(4, 7).bias(false)); });

  Network() { head.tie("weight", embedding, "weight"); }
  Value forward(Value x) override { return head(norm(first(embedding(x)))); }
};

Named values_of(Cell& network) {
  Named values;
  for (const auto& [name, value] : network.named_parameters(/*seed=*/77)) values[name] = value.detach().clone();
  for (const auto& [name, value] : network.named_buffers()) values[name] = value + 1;
  return values;
}

Named tensors() {
  Network network;
  return values_of(network);
}

struct Split {
  WorldOptions world;
  PipelineOptions pipeline;
};

/// What the threads of a pipeline read, after checking that its values are the source's.
std::vector<std::multiset<std::string>> reads_of(const Split& split) {
  const Named values = tensors();
  const auto source = std::make_shared<MemorySource>(values);
  Network network;
  network.take_weights_from(source);
  source->take_reads();
  World world(split.world);
  Pipeline pipeline(world, network, cross_entropy, split.pipeline);
  const auto reads = source->take_reads();
  std::size_t same = 0;
  for (const auto& item : pipeline.state_dict()) same += torch::equal(item.value(), values.at(item.key()));
  EXPECT_EQ(same, values.size());
  return reads;
}

TEST(WeightSource, is_read_once_by_each_rank_for_its_own_tensors) {
  const std::multiset<std::string> head{"embedding.weight"}, body{"first.weight", "first.bias"},
      all{"embedding.weight", "first.weight",      "first.bias",       "norm.weight",
          "norm.bias",        "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"};
  EXPECT_EQ(reads_of({}), std::vector{all});  // the tied head on its owner's stage
  const auto reads = reads_of({{.stages = 4, .replicas = 2}, {.micro_batches = 2, .partition = "uniform"}});
  ASSERT_EQ(reads.size(), 8u);
  EXPECT_EQ(std::ranges::count(reads, head), 4);  // the stages of the owner and of the tied layer
  EXPECT_EQ(std::ranges::count(reads, body), 2);
}

TEST(WeightSource, is_read_by_ranks_of_several_stages) {
  const auto reads =
      reads_of({{.stages = 2}, {.micro_batches = 2, .schedule = "interleaved", .chunks = 2, .partition = "uniform"}});
  ASSERT_EQ(reads.size(), 2u);
  for (const auto& names : reads) EXPECT_EQ(names.count("embedding.weight"), 1u);
}

TEST(WeightSource, replaces_the_seed_in_standalone_runs) {
  const Named values = tensors();
  Network network;
  network.take_weights_from(std::make_shared<MemorySource>(values));
  for (const auto& [name, value] : network.named_parameters(/*seed=*/1)) EXPECT_TRUE(value.equal(values.at(name)));
}

TEST(WeightSource, is_cast_to_the_dtype_of_the_parameter) {
  Named values = tensors();
  values["first.weight"] = values["first.weight"].to(torch::kBFloat16);
  Network network;
  network.take_weights_from(std::make_shared<MemorySource>(values));
  const torch::Tensor taken = network.named_parameters()[1].second;
  EXPECT_EQ(taken.scalar_type(), torch::kFloat32);
  EXPECT_TRUE(taken.equal(values["first.weight"].to(torch::kFloat32)));
}

std::string error_with(Named values) {
  Network network;
  return error_text<ConfigError>([&] { network.take_weights_from(std::make_shared<MemorySource>(std::move(values))); });
}

TEST(WeightSource, names_the_tensor_and_both_values) {
  Named values = tensors();
  values["first.weight"] = torch::zeros({4, 5});
  EXPECT_EQ(
      error_with(values),
      "'first.weight' has shape [4, 4] in the network and [4, 5] in weights.bin: pass the weights of this network");
  values.erase("first.weight");
  EXPECT_EQ(error_with(values),
            "the network has 'first.weight' of shape [4, 4], but weights.bin has no tensor of that name: pass the "
            "weights of this network");
  values["first.weight"] = torch::zeros({4, 4}, torch::kInt64);
  EXPECT_EQ(error_with(values),
            "'first.weight' is float in the network and long int in weights.bin: only floating-point tensors are cast");
}

TEST(WeightSource, names_three_tensors_that_no_layer_takes) {
  Named values = tensors();
  values["head.weight"] = values["embedding.weight"];
  EXPECT_EQ(error_with(values),
            "weights.bin has 'head.weight', which the network does not have: pass the weights of this network");
  for (const char* name : {"a", "b", "c"}) values[name] = torch::zeros({1});
  EXPECT_EQ(error_with(values),
            "weights.bin has 'a', 'b', 'c' and 1 more, which the network does not have: pass the weights of this "
            "network");
}

TEST(WeightSource, may_lack_and_have_what_it_says) {
  Named values = tensors();
  values.erase("first.bias");
  values["head.weight"] = values["embedding.weight"];
  const auto source = std::make_shared<MemorySource>(values);
  source->optional = "first.bias";
  source->unused = "head.weight";
  Network network, random;
  network.take_weights_from(source);
  EXPECT_TRUE(network.named_parameters(3)[2].second.equal(random.named_parameters(3)[2].second));
  EXPECT_FALSE(network.named_parameters()[1].second.equal(random.named_parameters()[1].second));
}

struct Outer : Cell {
  Network inner;
  Layer last = add("last", [] { return torch::nn::Linear(7, 2); });
  explicit Outer(const std::shared_ptr<const WeightSource>& source) {
    inner.take_weights_from(source);
    add("inner", inner);
  }
  Value forward(Value x) override { return last(inner(x)); }
};

TEST(WeightSource, of_an_inner_cell_has_its_names) {
  const Named values = tensors();
  Outer outer(std::make_shared<MemorySource>(values));
  World world({.stages = 2});
  Pipeline pipeline(world, outer, cross_entropy, {.micro_batches = 2, .partition = "uniform"});
  std::size_t same = 0;
  for (const auto& item : pipeline.state_dict())
    same += item.key().starts_with("inner.") && item.value().equal(values.at(item.key().substr(6)));
  EXPECT_EQ(same, values.size());
}

}  // namespace
}  // namespace penstock::test::weight_source_test
