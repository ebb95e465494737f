// Parameter groups, all optimisers of torch, gradient hooks, averages, gradient accumulation, and weights copied back
// to the network, compared with plain loops of LibTorch.
#include <gtest/gtest.h>

#include <limits>
#include <mutex>
#include <set>

#include "penstock/penstock.h"
#include "tests/base/error_text.h"
#include "tests/support/expect_same.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::pipeline_weights_test {
namespace {

/// The same training by Penstock and in plain LibTorch, from the same state.
struct Network : Cell {
  Layer first = add("first", [] { return torch::nn::Linear(6, 8); });
  Layer norm = add("norm", [] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})); });
  Layer second = add("second", [] { return torch::nn::Linear(8, 8); });
  Layer last = add("last", [] { return torch::nn::Linear(8, 4); });
  Value forward(Value x) override { return last(relu(second(relu(norm(first(x)))))); }
};

struct Plain : torch::nn::Module {
  torch::nn::Linear first{register_module("first", torch::nn::Linear(6, 8))};
  torch::nn::LayerNorm norm{register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(8, 8))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(8, 4))};
  torch::Tensor forward(const torch::Tensor& x) { return last(torch::relu(second(torch::relu(norm(first(x)))))); }
};

struct Job : PipelineOf<Network> {
  explicit Job(const WorldOptions& where = {}, std::optional<double> clip_norm = std::nullopt)
      : PipelineOf(where, {.clip_norm = clip_norm, .seed = 3}) {
    torch::manual_seed(7);
    inputs = torch::randn({12, 6});
    targets = torch::arange(12) % 4;
  }
  void train(int steps = 1) {
    for (int step = 0; step < steps; ++step) train_step(inputs, targets).wait();
  }
  torch::Tensor inputs, targets;
};

StateDict state_of(torch::nn::Module& module) {
  StateDict state;
  for (auto& item : module.named_parameters()) state.insert(item.key(), item.value().detach().clone());
  return state;
}

/// The network of `job`, and the function of a plain loop after the backward pass of each step.
StateDict plain_loop(Job& job, int steps, const std::function<std::function<void(int)>(Plain&)>& prepare) {
  Plain plain;
  copy_state(job, plain);
  const auto update = prepare(plain);
  for (int step = 0; step < steps; ++step) {
    plain.zero_grad();
    (torch::nn::functional::cross_entropy(plain.forward(job.inputs), job.targets,
                                          torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum)) /
     12)
        .backward();
    update(step);
  }
  return state_of(plain);
}

/// A user-defined optimiser: sign descent.
struct SignDescentOptions : torch::optim::OptimizerCloneableOptions<SignDescentOptions> {
  double rate = 0.01;
  double get_lr() const override { return rate; }
  void set_lr(const double lr) override { rate = lr; }
};
class SignDescent : public torch::optim::Optimizer {
 public:
  explicit SignDescent(const std::vector<torch::Tensor>& parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(parameters)}, std::make_unique<SignDescentOptions>()) {}
  torch::Tensor step(LossClosure) override {
    torch::NoGradGuard no_grad;
    for (auto& group : param_groups())
      for (auto& p : group.params())
        if (p.grad().defined()) p.sub_(p.grad().sign() * group.options().get_lr());
    return {};
  }
};

template <class Make>
void expect_as_plain(const Make& make) {
  for (const int stages : {1, 3}) {
    Job job({.stages = stages});
    const StateDict plain = plain_loop(job, 4, [&](Plain& network) {
      return [optimizer = std::shared_ptr(optimizer_factory(make)([&] {
                std::vector<NamedParameter> all;
                for (auto& item : network.named_parameters()) all.push_back({item.key(), item.value()});
                return all;
              }()))](int) { optimizer->step(); };
    });
    job.optimize_with(make);
    job.train(4);
    expect_same(job.state_dict(), plain, say(stages, " stages"));
  }
}

TEST(PipelineOptimizers, of_torch_and_of_the_user_equal_a_plain_loop) {
  expect_as_plain([](auto p) { return torch::optim::SGD(p, torch::optim::SGDOptions(0.1).momentum(0.9)); });
  expect_as_plain([](auto p) { return torch::optim::Adam(p, 0.01); });
  expect_as_plain([](auto p) { return torch::optim::AdamW(p, 0.01); });
  expect_as_plain([](auto p) { return torch::optim::RMSprop(p, 0.01); });
  expect_as_plain([](auto p) { return torch::optim::Adagrad(p, 0.01); });
  expect_as_plain([](auto p) { return SignDescent(p); });
  expect_as_plain([](auto p) { return std::make_unique<SignDescent>(p); });
}

TEST(PipelineOptimizers, lbfgs_is_an_error_with_the_reason) {
  Job job;
  const std::string text =
      error_text<ConfigError>([&] { job.optimize_with([](auto p) { return torch::optim::LBFGS(p, 1.0); }); });
  EXPECT_TRUE(says(text, "LBFGS", "closure", "whole network", "Adam or SGD")) << text;
}

// Regression: the rates of a torch optimiser's own groups were all set to one rate.
TEST(PipelineOptimizers, groups_of_a_torch_optimizer_keep_their_proportion) {
  const torch::Tensor a = torch::ones({2}).requires_grad_(), b = torch::ones({2}).requires_grad_();
  const auto make = [](std::vector<torch::Tensor> p) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector<torch::Tensor>{p[0]});
    groups.emplace_back(std::vector<torch::Tensor>{p[1]}, std::make_unique<torch::optim::SGDOptions>(0.01));
    return torch::optim::SGD(groups, torch::optim::SGDOptions(0.1));
  };
  const auto optimizer = optimizer_factory(make)({{"a", a}, {"b", b}});
  EXPECT_EQ(optimizer->learning_rate(), 0.1);
  optimizer->set_learning_rate(0.5);
  a.mutable_grad() = torch::ones({2});
  b.mutable_grad() = torch::ones({2});
  optimizer->step();
  EXPECT_TRUE(torch::allclose(a, torch::full({2}, 0.5)));
  EXPECT_TRUE(torch::allclose(b, torch::full({2}, 0.95)));
}

auto adamw_of(double rate, double decay) {
  return [=](auto p) { return torch::optim::AdamW(p, torch::optim::AdamWOptions(rate).weight_decay(decay)); };
}

TEST(ParameterGroups, equal_a_plain_loop_with_groups_under_a_learning_rate_schedule) {
  for (const int stages : {1, 2, 4}) {
    Job job({.stages = stages});
    const StateDict plain = plain_loop(job, 5, [&](Plain& network) {
      std::vector<torch::Tensor> none, last, rest;
      for (auto& item : network.named_parameters())
        (item.value().dim() < 2 ? none : item.key() == "last.weight" ? last : rest).push_back(item.value());
      struct Three {
        torch::optim::AdamW none, last, rest;
      };
      auto three = std::make_shared<Three>(
          Three{adamw_of(0.01, 0)(none), adamw_of(0.001, 0.5)(last), adamw_of(0.01, 0.2)(rest)});
      return [three](int step) {
        const double rate = 0.01 * (step + 1);
        three->none.param_groups()[0].options().set_lr(rate);
        three->last.param_groups()[0].options().set_lr(rate * (0.001 / 0.01));
        three->rest.param_groups()[0].options().set_lr(rate);
        three->none.step();
        three->last.step();
        three->rest.step();
      };
    });
    job.optimize_with(
        ParameterGroups(adamw_of(0.01, 0.2)).add(no_decay, adamw_of(0.01, 0)).add("last.*", adamw_of(0.001, 0.5)));
    for (int step = 0; step < 5; ++step) {
      job.set_learning_rate(0.01 * (step + 1));
      job.train_step(job.inputs, job.targets);
    }
    expect_same(job.state_dict(), plain, say(stages, " stages"));
  }
}

TEST(ParameterGroups, a_pattern_without_a_match_is_an_error) {
  Job job;
  const std::string text =
      error_text<ConfigError>([&] { job.optimize_with(ParameterGroups(sgd()).add("lost.*", sgd())); });
  EXPECT_TRUE(says(text, "'lost.*'", "no parameter", "nearest")) << text;
  EXPECT_NO_THROW(job.optimize_with(ParameterGroups(sgd()).add("*.b?as", sgd({.learning_rate = 0}))));
  const StateDict before = job.state_dict();
  job.train();
  for (const auto& [name, value] : job.state_dict().pairs())
    EXPECT_EQ(value.equal(before[name]), name.ends_with(".bias")) << name;
}

TEST(GradientHook, receives_gradients_before_clipping) {
  std::optional<StateDict> first;
  for (const auto& [stages, replicas] : {std::pair(1, 1), {2, 1}, {4, 1}}) {
    Job job({.stages = stages, .replicas = replicas}, 0.05);
    const StateDict plain = plain_loop(job, 3, [](Plain& network) {
      return [&network, sgd = std::make_shared<torch::optim::SGD>(network.parameters(), 0.1)](int) {
        for (auto& item : network.named_parameters())
          if (item.key() == "first.weight") item.value().mutable_grad() = item.value().grad() * 0;
        torch::nn::utils::clip_grad_norm_(network.parameters(), 0.05);
        sgd->step();
      };
    });
    std::mutex mutex;
    std::set<std::string> seen;
    job.optimize_with([](auto p) { return torch::optim::SGD(p, 0.1); });
    job.add_gradient_hook([&](const std::string& name, const torch::Tensor& gradient) {
      std::lock_guard lock(mutex);
      seen.insert(name);
      return name == "first.weight" ? gradient * 0 : torch::Tensor();
    });
    job.train(3);
    const StateDict state = job.state_dict();
    EXPECT_EQ(seen.size(), 8u);
    expect_close(state, plain);
    if (!first) first = state;
    expect_same(*first, state, say(stages, " stages"));
  }
}

TEST(GradientHook, returning_another_shape_fails_the_step) {
  Job job({.stages = 2});
  job.optimize_with(sgd());
  job.add_gradient_hook([](const std::string&, const torch::Tensor& gradient) { return gradient.sum(); });
  const std::string text = error_text<Failure>([&] { job.train(); });
  EXPECT_TRUE(says(text, "gradient hook", "shape []")) << text;
}

TEST(Average, equals_that_of_a_plain_loop) {
  for (const int stages : {1, 3}) {
    Job job({.stages = stages});
    StateDict average;
    const StateDict plain = plain_loop(job, 4, [&](Plain& network) {
      average = state_of(network);
      return [&, sgd = std::make_shared<torch::optim::SGD>(network.parameters(), 0.5)](int) {
        sgd->step();
        torch::NoGradGuard no_grad;
        for (auto& item : network.named_parameters()) average[item.key()].lerp_(item.value(), 1 - 0.9);
      };
    });
    EXPECT_THROW(WeightAverage(job, 1), ConfigError);
    job.optimize_with([](auto p) { return torch::optim::SGD(p, 0.5); });
    WeightAverage weights(job, 0.9);
    job.train(4);
    expect_same(weights.state_dict(), average, "average");
    expect_same(job.state_dict(), plain, "weights");

    const double loss = job.evaluate(job.inputs, job.targets).loss();
    weights.use(true);
    expect_same(job.state_dict(), average, "in use");
    EXPECT_NE(job.evaluate(job.inputs, job.targets).loss(), loss);
    const std::string text = error_text<ConfigError>([&] { job.train_step(job.inputs, job.targets); });
    EXPECT_TRUE(says(text, "use(false)")) << text;
    weights.use(false);
    EXPECT_EQ(job.evaluate(job.inputs, job.targets).loss(), loss);
    job.train();
  }
}

/// Two uses of a layer on one stage, and a head that is tied across stages.
struct Tied : Cell {
  Layer embed = add("embed", [] { return torch::nn::Linear(torch::nn::LinearOptions(6, 6).bias(false)); });
  Layer twice = add("twice", [] { return torch::nn::Linear(6, 6); });
  Layer head = add("head", [] { return torch::nn::Linear(torch::nn::LinearOptions(6, 6).bias(false)); });
  Tied() { head.tie("weight", embed, "weight"); }
  Value forward(Value x) override { return head(twice(relu(twice(relu(embed(x)))))); }
};

TEST(Gathered, several_calls_equal_one_step_over_their_batches) {
  torch::manual_seed(7);
  const torch::Tensor inputs = torch::randn({12, 6}), targets = torch::arange(12) % 4;
  for (const Reduction reduction : {Reduction::mean, Reduction::sum})
    for (const auto& [stages, replicas] : {std::pair(1, 1), {3, 1}, {2, 2}})
      for (const std::optional<double> clip : {std::optional<double>(), std::optional<double>(0.05)}) {
        const auto train = [&](const std::function<void(Pipeline&)>& two_steps, int micro_batches,
                               int update_every = 1) {
          PipelineOf<Tied> pipeline({.stages = stages, .replicas = replicas},
                                    {.micro_batches = micro_batches,
                                     .update_every = update_every,
                                     .loss_reduction = {.reduction = reduction},
                                     .clip_norm = clip},
                                    torch_sgd(0.2));
          two_steps(pipeline);
          return pipeline.state_dict();
        };
        const auto part = [&](const torch::Tensor& x, int i) { return x.narrow(0, 4 * i, 4); };
        const StateDict whole = train(
            [&](Pipeline& pipeline) {
              for (int step = 0; step < 2; ++step) pipeline.train_step(inputs, targets);
            },
            6);
        const StateDict by_parts = train(
            [&](Pipeline& pipeline) {
              for (int step = 0; step < 2; ++step) {
                for (int i = 0; i < 3; ++i) {
                  pipeline.forward_backward(part(inputs, i), part(targets, i));
                  if (i == 1) pipeline.local_gradients();
                }
                pipeline.step();
              }
            },
            2);
        const StateDict by_steps = train(
            [&](Pipeline& pipeline) {
              for (int step = 0; step < 6; ++step) {
                const StepResult result = pipeline.train_step(part(inputs, step % 3), part(targets, step % 3));
                EXPECT_EQ(result.has_gradient_norm(), clip && step % 3 == 2);
              }
            },
            2, /*update_every=*/3);
        const std::string what = say(stages, " x ", replicas, reduction == Reduction::sum ? " sum" : " mean");
        expect_close(whole, by_parts);
        expect_same(by_parts, by_steps, what);
      }
}

TEST(Gathered, calls_of_different_sizes_are_weighted_by_their_samples) {
  Job whole, parts;
  for (Job* job : {&whole, &parts}) job->optimize_with([](auto p) { return torch::optim::SGD(p, 0.2); });
  whole.train_step(whole.inputs, whole.targets);
  parts.forward_backward(parts.inputs.narrow(0, 0, 9), parts.targets.narrow(0, 0, 9));
  const double loss = parts.forward_backward(parts.inputs.narrow(0, 9, 3), parts.targets.narrow(0, 9, 3)).loss();
  EXPECT_NEAR(loss, 1.4, 0.6) << "of its own batch, not of all";
  EXPECT_THROW(PipelineOf<Tied>({.stages = 1}, {.update_every = 0}), ConfigError);
  parts.step();
  expect_close(whole.state_dict(), parts.state_dict());
}

/// With statistics and dropout, which differ between training and evaluation mode.
struct Modes : Cell {
  Layer in = add("in", [] { return torch::nn::Linear(6, 8); });
  Layer norm = add("norm", [] { return torch::nn::BatchNorm1d(8); });
  Layer drop = add("drop", [] { return torch::nn::Dropout(0.5); });
  struct Head : Cell {
    Layer out = add("out", [] { return torch::nn::Linear(8, 4); });
    Value forward(Value x) override { return out(x); }
  } head;
  Parameter shift = add_parameter("shift", [] { return torch::zeros({4}); });
  Modes() { add("head", head); }
  Value forward(Value x) override { return head(drop(norm(in(x)))) + shift.value(); }
};

TEST(Cell, is_a_module_and_receives_the_trained_weights) {
  torch::manual_seed(7);
  const torch::Tensor inputs = torch::randn({12, 6}), targets = torch::arange(12) % 4;
  Modes network;
  network.eval();
  for (const auto& [name, module] : network.named_modules()) EXPECT_FALSE(module->is_training()) << name;
  EXPECT_EQ(network.parameters().size(), 7u);
  EXPECT_EQ(network.buffers().size(), 3u);
  EXPECT_EQ(network.named_buffers().front().first, "norm.running_mean");
  EXPECT_EQ(network.named_modules().back().first, "head.out");
  EXPECT_TRUE(network(inputs).tensor().equal(network(inputs).tensor()));
  network.train();
  EXPECT_FALSE(network(inputs).tensor().equal(network(inputs).tensor()));

  for (const int stages : {1, 2}) {
    World world({.stages = stages});
    Pipeline pipeline(world, network, cross_entropy, {.micro_batches = 2});
    pipeline.optimize_with([](auto p) { return torch::optim::SGD(p, 0.2); });
    for (int step = 0; step < 3; ++step) pipeline.train_step(inputs, targets);
    Modes fresh;
    for (Modes* to : {&network, &fresh}) {
      copy_state(pipeline, *to);
      to->eval();
      // Micro-batches of 6 rows, so that rounding is the same as for 6 rows.
      const torch::Tensor alone =
          torch::cat({(*to)(inputs.narrow(0, 0, 6)).tensor(), (*to)(inputs.narrow(0, 6, 6)).tensor()});
      EXPECT_TRUE(alone.equal(pipeline.infer(inputs).output()));
    }
    EXPECT_EQ(fresh.state_dict().keys(), pipeline.state_dict().keys());
  }
}

TEST(Cell, rejects_a_state_that_does_not_match) {
  Modes network;
  StateDict state = network.state_dict();
  EXPECT_NO_THROW(network.load_state_dict(state));
  state.insert("head.oux.weight", torch::zeros({4, 8}));
  EXPECT_TRUE(
      says(error_text<ConfigError>([&] { network.load_state_dict(state); }), "'head.oux.weight'", "'head.out.weight'"));
  state.erase("head.oux.weight");
  state["shift"] = torch::zeros({5});
  EXPECT_TRUE(says(error_text<ConfigError>([&] { network.load_state_dict(state); }), "'shift'", "[4]", "[5]"));
  state.erase("shift");
  EXPECT_TRUE(says(error_text<ConfigError>([&] { network.load_state_dict(state); }), "'shift'", "does not have"));
  EXPECT_NO_THROW(network.load_state_dict(state, Cell::Missing::keep));
}

TEST(Cell, annotated_for_stages_runs_on_one_device) {
  std::vector<double> losses;
  for (const int stages : {2, 1}) {
    World world({.stages = stages});
    EXPECT_EQ(world.rank_of(stages - 1, 0).value(), stages - 1);
    EXPECT_EQ(world.stage_rank() + world.replica() + world.rank(), 0);
    Network network;
    network.first.pipeline_stage = network.norm.pipeline_stage = 0;
    network.second.pipeline_stage = network.last.pipeline_stage = 1;
    Pipeline pipeline(world, network, cross_entropy, {.micro_batches = 2});
    pipeline.optimize_with(sgd());
    torch::manual_seed(7);
    losses.push_back(pipeline.train_step(torch::randn({12, 6}), torch::arange(12) % 4).loss());
  }
  EXPECT_EQ(losses[0], losses[1]);
}

}  // namespace
}  // namespace penstock::test::pipeline_weights_test
