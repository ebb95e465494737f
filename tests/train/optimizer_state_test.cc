// An optimiser that takes over the state of another one continues with the same bits, also if the parameters are
// divided among optimisers in another way.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "penstock/base/error.h"
#include "penstock/pipeline/parameter_groups.h"
#include "penstock/train/optimizers.h"
#include "tests/base/error_text.h"

namespace penstock::test::optimizer_state_test {
namespace {

using Parameters = std::vector<NamedParameter>;

Parameters fresh() {
  torch::manual_seed(1);
  Parameters parameters{{"a.weight", torch::randn({17, 5})},
                        {"a.bias", torch::randn({33})},
                        {"b.scale", torch::randn({})},
                        {"c.weight", torch::randn({4, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast)}};
  for (NamedParameter& parameter : parameters) parameter.value.requires_grad_(true);
  return parameters;
}

/// Gradients that depend on the step alone. The bias has none in the first four steps.
void set_gradients(Parameters& parameters, std::uint64_t step) {
  torch::manual_seed(100 + step);
  for (NamedParameter& parameter : parameters) {
    const torch::Tensor gradient = torch::randn(parameter.value.sizes());
    parameter.value.mutable_grad() = parameter.name == "a.bias" && step < 4 ? torch::Tensor() : gradient;
  }
}

/// The state in memory of its own, as a file gives it back.
OptimizerState copied(const OptimizerState& state) {
  OptimizerState copy;
  for (const auto& [name, value] : state) copy[name] = value.detach().clone(at::MemoryFormat::Contiguous);
  return copy;
}

/// Runs ten steps at once, and 3, 5 or 10 steps by one optimiser and the others by two of its kind with its state.
void expect_same_bits(const OptimizerFactory& make, const std::string& slot) {
  Parameters wanted = fresh();
  const auto whole = make(wanted);
  for (std::uint64_t step = 0; step < 10; ++step) {
    set_gradients(wanted, step);
    whole->step();
  }
  for (const std::uint64_t stop : {0, 3, 5, 10}) {
    Parameters parameters = fresh();
    std::vector<std::unique_ptr<Optimizer>> optimizers;
    optimizers.push_back(make(parameters));
    for (std::uint64_t step = 0; step < 10; ++step) {
      if (step == stop) {
        const OptimizerState state = copied(optimizers.front()->state());
        EXPECT_TRUE(step == 0 || slot.empty() || state.contains(slot)) << slot;
        optimizers.clear();
        optimizers.push_back(make({parameters[2], parameters[0]}));
        optimizers.push_back(make({parameters[3], parameters[1]}));
        for (const auto& optimizer : optimizers) optimizer->load_state(state);
      }
      set_gradients(parameters, step);
      for (const auto& optimizer : optimizers) optimizer->step();
    }
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(torch::equal(parameters[i].value, wanted[i].value)) << wanted[i].name << ", stopped at " << stop;
    OptimizerState all;
    for (const auto& optimizer : optimizers) all.merge(optimizer->state());
    const OptimizerState reference = whole->state();
    ASSERT_EQ(all.size(), reference.size());
    for (const auto& [name, value] : reference) EXPECT_TRUE(torch::equal(all.at(name), value)) << name;
  }
}

TEST(OptimizerState, of_fast_optimisers_continues_exactly) {
  expect_same_bits(sgd({.learning_rate = 0.1}), "");
  expect_same_bits(sgd({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true}), "c.weight/momentum");
  expect_same_bits(adam({.weight_decay = 0.01}), "b.scale/exp_avg_sq");
  expect_same_bits(adamw({.weight_decay = 0.01}), "a.weight/step");
}

TEST(OptimizerState, of_torch_optimisers_continues_exactly) {
  namespace optim = torch::optim;
  const auto with = [](auto make) { return optimizer_factory(make); };
  expect_same_bits(with([](auto p) { return optim::SGD(p, optim::SGDOptions(0.1).momentum(0.9)); }),
                   "a.weight/momentum_buffer");
  expect_same_bits(with([](auto p) { return optim::SGD(p, optim::SGDOptions(0.1)); }), "");
  expect_same_bits(with([](auto p) { return optim::Adam(p, optim::AdamOptions(0.1).amsgrad(true)); }),
                   "a.weight/max_exp_avg_sq");
  expect_same_bits(with([](auto p) { return optim::AdamW(p, optim::AdamWOptions(0.1)); }), "a.weight/step.int");
  expect_same_bits(
      with([](auto p) { return optim::RMSprop(p, optim::RMSpropOptions(0.1).momentum(0.5).centered(true)); }),
      "c.weight/grad_avg");
  expect_same_bits(with([](auto p) { return optim::Adagrad(p, optim::AdagradOptions(0.1).lr_decay(0.1)); }),
                   "b.scale/sum");
}

TEST(OptimizerState, of_groups_continues_exactly) {
  expect_same_bits(ParameterGroups(adamw({.weight_decay = 0.1}))
                       .add(no_decay, [](auto p) { return torch::optim::RMSprop(p, 0.1); })
                       .factory(),
                   "b.scale/square_avg");
}

TEST(OptimizerState, keeps_the_options_of_its_optimiser) {
  Parameters parameters = fresh();
  const auto make = optimizer_factory([](auto p) { return torch::optim::Adam(p, 0.1); });
  const auto first = make(parameters), second = make(parameters);
  set_gradients(parameters, 5);
  first->step();
  second->set_learning_rate(0.25);
  second->load_state(copied(first->state()));
  EXPECT_EQ(second->learning_rate(), 0.25);
  const torch::Tensor before = parameters[2].value.detach().clone();
  second->step();
  EXPECT_GT((parameters[2].value - before).abs().item<double>(), 0.15);
}

struct Stateless : Optimizer {
  void step() override {}
  void set_learning_rate(double) override {}
};

TEST(OptimizerState, refuses_what_does_not_fit) {
  const Parameters parameters = fresh();
  const auto complaint = [&](const OptimizerFactory& make, const std::function<void(OptimizerState&)>& change) {
    const auto optimizer = make(parameters);
    OptimizerState state = copied(optimizer->state());
    change(state);
    return error_text<ConfigError>([&] { optimizer->load_state(state); });
  };
  const auto momentum = sgd({.momentum = 0.9});
  EXPECT_EQ(complaint(momentum, [](OptimizerState& state) { state["other"] = torch::ones({1}); }), "[no error]");
  EXPECT_TRUE(says(complaint(momentum, [](OptimizerState& state) { state.erase("a.bias/momentum"); }),
                   "the state has no 'a.bias/momentum'"));
  EXPECT_TRUE(says(complaint(momentum, [](OptimizerState& state) { state["a.bias/momentum"] = torch::ones({3}); }),
                   "'a.bias/momentum' is float of shape [3]", "needs float of shape [33]"));
  EXPECT_TRUE(says(complaint(optimizer_factory([](auto p) { return torch::optim::Adam(p, 0.1); }),
                             [](OptimizerState& state) { state["a.bias/exp_avg"] = torch::ones({3}); }),
                   "'a.bias/exp_avg' is of shape [3]", "parameter of shape [33]"));
  EXPECT_TRUE(says(error_text<ConfigError>([] { Stateless().state(); }), "override state() and load_state()"));
  EXPECT_TRUE(says(error_text<ConfigError>([] { Stateless().load_state({}); }), "override state() and load_state()"));
}

}  // namespace
}  // namespace penstock::test::optimizer_state_test
