// Between hosts the gradients of a stage leave for the other replicas in buckets while its backward pass goes on.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/penstock.h"
#include "penstock/rank/shared_parameters.h"
#include "penstock/transport/transport.h"
#include "tests/support/fault_injection.h"
#include "tests/support/trained.h"

namespace penstock::test::replica_buckets_test {
namespace {

constexpr std::int64_t width = 1024;  // a weight and its bias are a bucket
constexpr int replicas = 2;

/// x; calls `reached` in its backward pass.
struct Probe : torch::autograd::Function<Probe> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const std::function<void()>* reached) {
    context->saved_data["reached"] = reinterpret_cast<std::int64_t>(reached);
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    (*reinterpret_cast<const std::function<void()>*>(context->saved_data["reached"].toInt()))();
    return {gradients.front(), torch::Tensor()};
  }
};

struct ThreeLayers : Cell {
  explicit ThreeLayers(std::function<void()> in_backward) : reached(std::move(in_backward)) {}
  Value forward(Value x) override {
    x = norm(first(x));
    x = apply("probe", [this](const Tensors& values) { return Probe::apply(values[0], &reached); }, {x});
    return third(relu(second(x)));
  }

  std::function<void()> reached;
  Layer first = add("first", [] { return torch::nn::Linear(width, width); });
  Layer norm = add("norm", [] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})); });
  Layer second = add("second", [] { return torch::nn::Linear(width, width); });
  Layer third = add("third", [] { return torch::nn::Linear(width, width); });
};

/// A message between replicas: its part of a bucket's gradients, or the sums.
struct Sums {
  rank::Phase phase;
  int bucket;

  friend bool operator==(const Sums&, const Sums&) = default;
};

/// What rank 0 sends to the other replica.
struct Sent {
  std::atomic<std::thread::id> by{};
  std::vector<Sums> in_order;
  std::ptrdiff_t parts_before_first_layers = 0;
  bool meet_in_backward = false;  // so that each replica finds the parts that the other has sent
  std::barrier<> meeting{replicas};

  std::ptrdiff_t place_of(const Sums& message) const { return std::ranges::find(in_order, message) - in_order.begin(); }
};

enum class Hosts { one, several };

Trained train(Hosts hosts, int stages, const PipelineOptions& options, Sent& sent) {
  const WorldOptions ranks{.stages = stages, .replicas = replicas};
  auto endpoints = open_threads(stages * replicas, {});
  for (auto& endpoint : endpoints) {
    FaultPlan plan{.is_alone_on_host = hosts == Hosts::several};
    if (endpoint->rank() == WorldRank(0))
      plan.sent = [&](const Tag& tag) {
        if (tag.traffic != Traffic::reduce) return;
        sent.in_order.push_back({rank::Phase{tag.to_stage}, -1 - tag.micro_batch});
        sent.by = std::this_thread::get_id();
      };
    endpoint = with_faults(std::move(endpoint), plan);
  }
  World world(std::move(endpoints), ranks);
  // Both replicas come here, each on its thread.
  ThreeLayers network([&] {
    if (std::this_thread::get_id() == sent.by.load())
      sent.parts_before_first_layers = std::ranges::count(sent.in_order, rank::Phase::parts, &Sums::phase);
    if (sent.meet_in_backward) sent.meeting.arrive_and_wait();
  });
  Pipeline pipeline(world, network, cross_entropy, options);
  pipeline.optimize_with(sgd({.learning_rate = 0.1}));
  torch::manual_seed(1);
  const torch::Tensor x = torch::randn({8, width}), y = torch::arange(8);
  Trained trained;
  trained.losses.push_back(pipeline.train_step(x, y).loss());
  trained.state = pipeline.state_dict();
  return trained;
}

TEST(ReplicaBuckets, leave_while_the_backward_pass_goes_on) {
  Sent sent;
  train(Hosts::several, 1, {.micro_batches = 1}, sent);
  EXPECT_EQ(sent.parts_before_first_layers, 2) << "of the third and the second layer";
  EXPECT_EQ(sent.in_order.size(), 8U) << "parts and sums of three layers, and of the norm";
}

TEST(ReplicaBuckets, are_summed_while_the_backward_pass_goes_on) {
  Sent sent;
  sent.meet_in_backward = true;
  train(Hosts::several, 1, {.micro_batches = 1}, sent);
  const auto place_of_end = sent.place_of({rank::Phase::parts, 3});  // the norm's, which leave when all is computed
  ASSERT_EQ(sent.in_order.size(), 8U);
  EXPECT_LT(sent.place_of({rank::Phase::sums, 0}), place_of_end);
  EXPECT_LT(sent.place_of({rank::Phase::sums, 1}), place_of_end);
}

TEST(ReplicaBuckets, are_one_on_one_host) {
  Sent sent;
  train(Hosts::one, 1, {.micro_batches = 1}, sent);
  EXPECT_EQ(sent.parts_before_first_layers, 0);
  EXPECT_EQ(sent.in_order.size(), 2U) << "parts and sums";
}

TEST(ReplicaBuckets, change_no_bit_of_any_partition_and_schedule) {
  const auto train_on = [](Hosts hosts, int stages, const PipelineOptions& options) {
    Sent sent;
    return train(hosts, stages, options, sent);
  };
  for (const WeightGradients how : {WeightGradients::stream, WeightGradients::fused}) {
    const Trained one = train_on(Hosts::one, 1, {.micro_batches = 2, .weight_gradients = how});
    for (const int stages : {1, 3})
      for (const char* schedule : {"1f1b", "zb-h1"}) {
        const PipelineOptions options{.micro_batches = 2, .schedule = schedule, .weight_gradients = how};
        EXPECT_EQ(difference(one, train_on(Hosts::several, stages, options)), "") << stages << " " << schedule;
      }
  }
}

}  // namespace
}  // namespace penstock::test::replica_buckets_test
