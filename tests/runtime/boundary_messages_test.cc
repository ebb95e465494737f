// The messages between stages, of the same rank and of two ranks.
#include "penstock/rank/step_executor.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "penstock/base/error.h"

namespace penstock::test::boundary_messages_test {
namespace {

constexpr MicroBatch micro_batch(3);

/// Three stages in a chain, of which rank 0 holds the first two and rank 1 the third.
class BoundaryMessagesTest : public testing::Test {
 protected:
  BoundaryMessagesTest() {
    graph_.nodes.resize(3);
    for (int n = 0; n < 3; ++n) {
      graph_.nodes[static_cast<std::size_t>(n)].name = "layer" + std::to_string(n);
      StagePart& part = parts_[n];
      part.id = StageId(n);
      if (n > 0) part.receives.push_back({StageId(n - 1), {{n - 1, 0}}});
      if (n < 2) part.sends.push_back({StageId(n + 1), {{n, 0}}});
    }
    auto endpoints = open_threads(2, {});
    for (int rank = 0; rank < 2; ++rank) {
      const RankContext context{.rank = WorldRank(rank),
                                .stages = 2,
                                .is_alone = true,
                                .endpoint = std::move(endpoints[static_cast<std::size_t>(rank)])};
      placements_[rank] = std::make_unique<StagePlacement>(0, context, std::vector{Rank(0), Rank(0), Rank(1)});
    }
  }

  BoundaryMessages messages_of(int rank, std::optional<std::vector<std::int64_t>> shape = std::nullopt) {
    return {*placements_[rank], graph_, {std::move(shape), c10::kCPU}};
  }
  static std::vector<Message> one(const torch::Tensor& value) { return {{{{value, true}}, 0, 0}}; }

  Graph graph_;
  StagePart parts_[3];
  std::unique_ptr<StagePlacement> placements_[2];
};

TEST_F(BoundaryMessagesTest, StagesOfOneRankExchangeWithoutSending) {
  BoundaryMessages messages = messages_of(0);
  messages.begin_step(7);
  const torch::Tensor value = torch::ones({2}), gradient = torch::zeros({2});
  messages.put_values(parts_[0], micro_batch, one(value));
  EXPECT_TRUE(messages.take_values(parts_[1], micro_batch).at(0).payloads.at(0).tensor.is_same(value));
  EXPECT_THROW(messages.take_values(parts_[1], micro_batch), InternalError);
  messages.put_gradients(parts_[1], micro_batch, one(gradient));
  EXPECT_TRUE(messages.take_gradients(parts_[0], micro_batch).at(0).payloads.at(0).tensor.is_same(gradient));
}

TEST_F(BoundaryMessagesTest, ValuesAndGradientsReachTheOtherRank) {
  BoundaryMessages first = messages_of(0), second = messages_of(1);
  for (BoundaryMessages* messages : {&first, &second}) messages->begin_step(7);
  const StageId producer(1), consumer(2);
  first.put_values(parts_[1], micro_batch, one(torch::full({2}, 5)));
  first.send(Instruction::message(Op::send_forward, producer, consumer, micro_batch));
  second.receive(Instruction::message(Op::recv_forward, consumer, producer, micro_batch));
  const auto values = second.take_values(parts_[2], micro_batch);
  EXPECT_EQ(values.at(0).payloads.at(0).tensor.sum().item<double>(), 10);

  second.put_gradients(parts_[2], micro_batch, one(torch::full({2}, 6)));
  second.send(Instruction::message(Op::send_backward, consumer, producer, micro_batch));
  first.receive(Instruction::message(Op::recv_backward, producer, consumer, micro_batch));
  const auto gradients = first.take_gradients(parts_[1], micro_batch);
  EXPECT_EQ(gradients.at(0).payloads.at(0).tensor.sum().item<double>(), 12);
}

TEST_F(BoundaryMessagesTest, ALinkWithoutGradientsGivesUndefinedOnes) {
  BoundaryMessages messages = messages_of(0);
  const auto gradients = messages.take_gradients(parts_[1], micro_batch);
  ASSERT_EQ(gradients.size(), 1U);
  EXPECT_FALSE(gradients[0].payloads.at(0).tensor.defined());
}

TEST_F(BoundaryMessagesTest, AnotherShapeThanTheDeclaredOneIsRefused) {
  BoundaryMessages messages = messages_of(0, std::vector<std::int64_t>{4, 2});
  messages.put_values(parts_[0], micro_batch, one(torch::ones({4, 2})));
  EXPECT_THROW(messages.put_values(parts_[0], micro_batch.next(), one(torch::ones({4, 3}))), ScheduleError);
}

TEST_F(BoundaryMessagesTest, NothingIsLeftAfterClear) {
  BoundaryMessages messages = messages_of(0);
  messages.put_values(parts_[0], micro_batch, one(torch::ones({2})));
  messages.put_values(parts_[1], micro_batch, one(torch::ones({2})));
  messages.clear();
  EXPECT_THROW(messages.take_values(parts_[1], micro_batch), InternalError);
  EXPECT_THROW(messages.send(Instruction::message(Op::send_forward, StageId(1), StageId(2), micro_batch)),
               InternalError);
}

}  // namespace
}  // namespace penstock::test::boundary_messages_test
