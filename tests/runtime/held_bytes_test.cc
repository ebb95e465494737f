// Bytes of live activations: counted bytes equal predicted ones for every kind of step, and a count by hand for a small
// network; a context that is not freed shows.
#include <gtest/gtest.h>

#include "penstock/penstock.h"
#include "penstock/pipeline/profiler.h"
#include "penstock/schedule/generate.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::held_bytes_test {
namespace {

struct BytesCase {
  std::string schedule = "1f1b";
  int stages = 2;
  WeightGradients weight_gradients = WeightGradients::stream;
  bool recompute = false;
  Precision precision = Precision::fp32;
  int micro_batches = 4;
  std::optional<Schedule> custom = std::nullopt;

  std::string name() const {
    return say(schedule, " p ", stages, weight_gradients == WeightGradients::fused ? " fused" : " stream",
               recompute ? " recompute" : "", precision == Precision::bf16 ? " bf16" : "");
  }
};

struct Batch {
  torch::Tensor inputs;
  torch::Tensor targets;
};

std::vector<RankPeak> peaks_of(Cell& network, const Loss& loss, const Batch& batch, const BytesCase& how) {
  World world({.stages = how.stages});
  const PipelineOptions options{.micro_batches = how.micro_batches,
                                .schedule = how.schedule,
                                .custom = how.custom,
                                .weight_gradients = how.weight_gradients,
                                .recompute = how.recompute,
                                .count_bytes = true,
                                .precision = how.precision,
                                .partition = "uniform"};
  Pipeline pipeline(world, network, loss, options);
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  for (int step = 0; step < 3; ++step) pipeline.train_step(batch.inputs, batch.targets).wait();
  return Profiler(pipeline).peaks();
}

/// Batches of 10 make micro-batches of 3, 3, 2 and 2.
std::vector<RankPeak> gpt_peaks(const BytesCase& how) {
  Gpt network({.vocabulary = 17, .context = 6, .width = 8, .layers = 8, .heads = 2, .dropout = 0.1});
  const torch::Tensor tokens = (torch::arange(60) * 7 % 17).view({10, 6});
  return peaks_of(network, next_token_loss, {tokens, (tokens + 1) % 17}, how);
}

void expect_predicted(const std::vector<RankPeak>& peaks, const BytesCase& how) {
  for (const RankPeak& peak : peaks) {
    const std::string place = say(how.name(), " rank ", peak.rank.value());
    EXPECT_GT(peak.measured_bytes, 0) << place;
    EXPECT_EQ(peak.measured_bytes, peak.predicted_bytes) << place;
  }
}

std::int64_t sum_of(const std::vector<RankPeak>& peaks) {
  std::int64_t sum = 0;
  for (const RankPeak& peak : peaks) sum += peak.measured_bytes;
  return sum;
}

TEST(HeldBytes, measured_equals_predicted) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zb-v", "v-half", "v-min"})
    for (int stages : {2, 4})
      for (WeightGradients mode : {WeightGradients::stream, WeightGradients::fused}) {
        BytesCase how{.schedule = schedule, .stages = stages, .weight_gradients = mode};
        const auto kept = gpt_peaks(how);
        ASSERT_EQ(kept.size(), static_cast<std::size_t>(stages));
        expect_predicted(kept, how);
        how.recompute = true;
        const auto recomputed = gpt_peaks(how);
        expect_predicted(recomputed, how);
        if (mode == WeightGradients::stream) {
          EXPECT_LT(sum_of(recomputed), sum_of(kept)) << how.name();
        }
      }
}

TEST(HeldBytes, measured_equals_predicted_in_half_precision) {
  for (bool recompute : {false, true})
    for (const char* schedule : {"1f1b", "zb-v"}) {
      const BytesCase how{.schedule = schedule, .recompute = recompute, .precision = Precision::bf16};
      expect_predicted(gpt_peaks(how), how);
    }
}

/// Rows of 8 numbers; of a micro-batch of n, stage 0 stores [n, 16] floats.
struct TwoStages : Cell {
  Layer first = add("first", [] { return torch::nn::Linear(8, 16); });
  Layer middle = add("middle", [] { return torch::nn::ReLU(); });
  Layer last = add("last", [] { return torch::nn::Linear(16, 4); });
  TwoStages() {
    first.pipeline_stage = middle.pipeline_stage = 0;
    last.pipeline_stage = 1;
  }
  Value forward(Value x) override { return last(middle(first(x))); }
};

std::int64_t first_rank_bytes(const std::string& schedule) {
  TwoStages network;
  const auto peaks =
      peaks_of(network, cross_entropy, {torch::ones({8, 8}), torch::arange(8) % 4}, {.schedule = schedule});
  EXPECT_EQ(peaks.front().predicted_bytes, peaks.front().measured_bytes) << schedule;
  return peaks.front().measured_bytes;
}

TEST(HeldBytes, equal_a_count_by_hand) {
  // The rows of the batch and ReLU's result; after I, the gradient of the first layer's output instead of the latter.
  constexpr std::int64_t context = 2 * (8 + 16) * 4;
  EXPECT_EQ(first_rank_bytes("gpipe"), 4 * context);
  EXPECT_EQ(first_rank_bytes("1f1b"), 2 * context);
  EXPECT_EQ(first_rank_bytes("zb-h1"), 2 * context);
  EXPECT_EQ(first_rank_bytes("sequential"), context);
}

/// A network that keeps a reference to a layer's output, so that contexts do not free it.
TEST(HeldBytes, show_a_leak) {
  for (bool leaks : {false, true}) {
    struct Hoarding : Cell {
      Layer first = add("first", [] { return torch::nn::Linear(8, 16); });
      Layer last = add("last", [] { return torch::nn::Linear(16, 4); });
      Tensors hoard;
      bool leaks;
      explicit Hoarding(bool does) : leaks(does) {}
      Value forward(Value x) override {
        x = apply(
            "hoard",
            [this](const Tensors& v) {
              const torch::Tensor y = torch::tanh(v[0]);
              if (leaks) hoard.push_back(y);
              return y;
            },
            Values{first(x)});
        return last(x);
      }
    } network(leaks);
    const auto peaks = peaks_of(network, cross_entropy, {torch::ones({8, 8}), torch::arange(8) % 4}, {.stages = 1});
    if (leaks) {
      EXPECT_GT(peaks.front().measured_bytes, peaks.front().predicted_bytes);
    } else {
      EXPECT_EQ(peaks.front().measured_bytes, peaks.front().predicted_bytes);
    }
  }
}

/// A large parameter in a function with small values: its gradient is complete after I.
struct Heavy : Cell {
  Layer in = add("in", [] { return torch::nn::Linear(8, 8); });
  Parameter table = add_parameter("table", [] { return torch::ones({8, 8 * 4096}); });
  Layer out = add("out", [] { return torch::nn::Linear(8, 4); });
  Value forward(Value x) override {
    return out(apply(
        "product",
        [](const Tensors& v) {
          return v[0].matmul(v[1].view({8, 8, 4096}).sum(2));
        },
        Values{in(x), table.value()}));
  }
};

Schedule halves(const std::vector<int>& order_of_input_gradients) {
  Schedule schedule = generate("gpipe", {.ranks = 1, .micro_batches = 4});
  schedule.name = "halves";
  Order order;
  const auto add = [&](Op op, int i) { order.push_back(Instruction::compute(op, StageId(0), MicroBatch(i))); };
  for (int i = 0; i < 4; ++i) add(Op::forward, i);
  for (int i : order_of_input_gradients) add(Op::input_grad, i);
  for (int i = 0; i < 4; ++i) add(Op::weight_grad, i);
  schedule.orders = {order};
  return schedule;
}

/// Gradients of layers that do not split are summed in I; only those that come too early wait, and count.
TEST(HeldBytes, of_parameter_gradients_are_those_that_came_too_early) {
  constexpr std::int64_t table = 8 * 8 * 4096 * 4;
  const auto bytes = [](const std::vector<int>& order) {
    Heavy network;
    const auto peaks = peaks_of(network, cross_entropy, {torch::ones({8, 8}), torch::arange(8) % 4},
                                {.stages = 1, .custom = halves(order)});
    EXPECT_EQ(peaks.front().predicted_bytes, peaks.front().measured_bytes);
    return peaks.front().measured_bytes;
  };
  const std::int64_t in_order = bytes({0, 1, 2, 3});
  EXPECT_LT(in_order, table);
  const std::int64_t backwards = bytes({3, 2, 1, 0});
  EXPECT_GE(backwards, 3 * table);
  EXPECT_LT(backwards, 3 * table + in_order + 1);
  EXPECT_LT(bytes({0, 2, 1, 3}), table + in_order + 1);
}

TEST(HeldBytes, are_not_counted_unless_requested) {
  PipelineOf<TwoStages> pipeline({.stages = 2}, {.micro_batches = 2}, torch_sgd(0.1));
  for (int step = 0; step < 2; ++step) pipeline.train_step(torch::ones({4, 8}), torch::arange(4)).wait();
  for (const RankPeak& peak : Profiler(pipeline).local_peaks()) {
    EXPECT_EQ(peak.measured_bytes, 0);
    EXPECT_GT(peak.measured, 0);
    EXPECT_GT(peak.resident_bytes, 0);
    EXPECT_GT(peak.peak_resident_bytes, 0);
  }
}

}  // namespace
}  // namespace penstock::test::held_bytes_test
