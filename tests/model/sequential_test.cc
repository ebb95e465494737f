#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/model/graph.h"
#include "penstock/pipeline/pipeline.h"
#include "tests/base/error_text.h"

namespace penstock::test::sequential_test {
namespace {

std::vector<std::string> names(Cell& network) {
  std::vector<std::string> all;
  for (const Node& node : trace_graph(network).nodes) all.push_back(node.name);
  return all;
}

using Names = std::vector<std::string>;

TEST(FromSequential, names_values_and_results_equal_those_of_torch) {
  torch::nn::Sequential modules(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Linear(8, 2));
  const auto network = from_sequential(modules);
  EXPECT_EQ(names(*network), (Names{"0", "1", "2"}));
  const torch::Tensor x = torch::randn({3, 4});
  EXPECT_TRUE(torch::equal((*network)(Value(x)).tensor(), modules->forward(x)));
  const auto theirs = modules->named_parameters();
  const auto ours = network->named_parameters();
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [name, value] : ours) EXPECT_TRUE(torch::equal(value, theirs[name])) << name;
}

TEST(FromSequential, uses_the_given_names) {
  torch::nn::Sequential modules;
  modules->push_back("in", torch::nn::Linear(4, 8));
  modules->push_back("activation", torch::nn::ReLU());
  modules->push_back("out", torch::nn::Linear(8, 2));
  EXPECT_EQ(names(*from_sequential(modules)), (Names{"in", "activation", "out"}));
}

TEST(FromSequential, a_repeated_module_is_one_layer) {
  torch::nn::Linear shared(4, 4);
  torch::nn::Sequential modules(shared, torch::nn::ReLU(), shared);
  const auto network = from_sequential(modules);
  EXPECT_EQ(names(*network), (Names{"0", "1", "0_2"}));
  EXPECT_EQ(network->named_parameters().size(), 2U);
  const torch::Tensor x = torch::randn({3, 4});
  EXPECT_TRUE(torch::equal((*network)(Value(x)).tensor(), modules->forward(x)));

  // It trains as one layer: the gradient is the sum over both uses.
  const torch::Tensor target = torch::randint(0, 4, {3}, torch::kInt64);
  World world({.stages = 1});
  Pipeline pipeline(world, *from_sequential(modules), cross_entropy);
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.5); });
  pipeline.train_step(x, target).wait();
  torch::optim::SGD optimizer(modules->parameters(), 0.5);
  torch::nn::functional::cross_entropy(modules->forward(x), target).backward();
  torch::NoGradGuard no_grad;
  shared->weight.sub_(0.5 * shared->weight.grad());
  EXPECT_TRUE(torch::allclose(pipeline.state().at("0.weight"), shared->weight, 1e-5, 1e-6));
}

TEST(FromSequential, is_a_copy) {
  torch::nn::Linear fc(2, 2);
  const torch::Tensor before = fc->weight.detach().clone();
  torch::nn::Sequential modules(fc);
  World world({.stages = 1});
  Pipeline pipeline(world, *from_sequential(modules), squared_error);
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.5); });
  pipeline.train_step(torch::randn({3, 2}), torch::randn({3, 2})).wait();
  EXPECT_TRUE(torch::equal(fc->weight, before));
  EXPECT_FALSE(torch::equal(pipeline.state().at("0.weight"), before));
}

TEST(FromSequential, frozen_parameters_stay_frozen) {
  torch::nn::Sequential modules(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
  modules->named_parameters()["0.weight"].requires_grad_(false);
  const auto network = from_sequential(modules);
  for (const auto& [name, value] : network->named_parameters()) EXPECT_EQ(value.requires_grad(), name != "0.weight");

  World world({.stages = 2});
  Pipeline pipeline(world, *from_sequential(modules), squared_error, {.partition = "1"});
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.5); });
  pipeline.train_step(torch::randn({3, 2}), torch::randn({3, 2})).wait();
  const auto state = pipeline.state();
  for (const auto& item : modules->named_parameters())
    EXPECT_EQ(torch::equal(state.at(item.key()), item.value()), item.key() == "0.weight") << item.key();
}

TEST(FromSequential, refuses_an_empty_sequential) {
  EXPECT_TRUE(
      says(error_text<ScheduleError>([] { from_sequential(torch::nn::Sequential()); }), "empty", "add a module"));
}

}  // namespace
}  // namespace penstock::test::sequential_test
