// Static steps in device channels: messages without announcements, received into assigned buffers.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/transport/receive_memory.h"
#include "tests/devices/joined_jobs.h"
#include "tests/devices/static_pair.h"
#include "tests/support/stream_groups.h"
#include "tests/support/test_device.h"

namespace penstock::test::static_steps_test {
namespace {

using StaticSteps = StaticPair;

TEST_F(StaticSteps, announce_their_messages_in_the_first_step_alone) {
  constexpr int count = 5;
  const auto sent = [&] { return ranks_[0]->message_costs().sent; };
  std::uint64_t before = sent();
  step_of(0, count);
  EXPECT_EQ(sent() - before, count + 1U) << "the announcements, and how many they were";
  for (const std::uint64_t step : {1, 2}) {
    before = sent();
    step_of(step, count);
    EXPECT_EQ(sent() - before, 1U) << "that all has been sent";
  }
  // What is not of the step is announced as ever.
  both([&](int rank) {
    if (rank == 0)
      send(3, 0, torch::ones({7}));
    else
      EXPECT_TRUE(torch::equal(receive(3, 0).cpu(), torch::ones({7})));
  });
  step_of(4, count);
}

TEST_F(StaticSteps, receive_into_the_buffers_of_their_form) {
  StepForm form{.name = "3 samples", .memory = std::make_shared<ReceiveMemory>(), .posts = 1};
  for (int i = 0; i < 6; ++i) form.buffers[value(0, i)] = i % 3;
  forms_[1] = std::make_shared<StepForm>(form);
  std::vector<void*> memory(3);
  for (const std::uint64_t step : {0, 1, 2, 3})
    both([&](int rank) {
      begin(rank, step);
      std::optional<torch::Tensor> kept;
      for (int i = 0; i < 6; ++i) {
        if (rank == 0) {
          send(step, i, torch::full({4}, i));
          continue;
        }
        const torch::Tensor got = receive(step, i);
        EXPECT_TRUE(torch::equal(got.cpu(), torch::full({4}, i)));
        got.mul_(2);  // the rank's work on the buffer, behind which it is received into again
        void*& known = memory[index(i % 3)];
        if (step == 2 || (step == 1 && i >= 3)) {
          const bool is_kept = step == 2 && i == 3;  // the tensor of message 0, which has its memory for itself
          EXPECT_EQ(got.data_ptr() == known, !is_kept) << "step " << step << ", message " << i;
        }
        if (step > 0) known = got.data_ptr();
        if (step == 2 && i == 0) kept = got;
      }
      if (kept) {
        EXPECT_TRUE(torch::equal(kept->cpu(), torch::zeros({4}))) << "overwritten";
      }
      end(rank);
    });
}

TEST_F(StaticSteps, take_messages_in_another_order_than_that_of_sending) {
  for (const std::uint64_t step : {0, 1, 2})
    both([&](int rank) {
      begin(rank, step);
      for (int i = 0; i < 6; ++i) {
        if (rank == 0)
          send(step, i, torch::full({i + 1}, i));
        else
          EXPECT_TRUE(torch::equal(receive(step, 5 - i).cpu(), torch::full({6 - i}, 5 - i)));
      }
      end(rank);
    });
}

TEST_F(StaticSteps, with_numbers_on_the_host_stay_announced) {
  for (const std::uint64_t step : {0, 1, 2})
    both([&](int rank) {
      begin(rank, step);
      const torch::Tensor numbers = torch::full({2}, static_cast<double>(step));
      if (rank == 0) {
        ranks_[0]->send(WorldRank(1), value(step, 0), {{{numbers, false}, {numbers.to(test_device(0)) * 1, false}}});
      } else {
        const Message got = ranks_[1]->receive(WorldRank(0), value(step, 0), "1RECV_F0");
        EXPECT_TRUE(torch::equal(got.payloads[0].tensor, numbers));
        EXPECT_TRUE(torch::equal(got.payloads[1].tensor.cpu(), numbers));
      }
      end(rank);
    });
}

TEST_F(StaticSteps, refuse_messages_that_differ_from_the_first_step) {
  step_of(0, 2);
  const std::string advice =
      " the first step of 3 samples: leave out static_shapes (--static-shapes) where equal batches exchange different "
      "tensors";
  const auto refusal = [&](const auto& work) {
    std::string text;
    both([&](int rank) {
      if (rank == 1) return;
      begin(rank, 1);
      try {
        work();
      } catch (const ConfigError& error) {
        text = error.what();
      }
    });
    return text;
  };
  EXPECT_EQ(refusal([&] {
              send(1, 0, torch::ones({4, 2}));
            }),
            "0SEND_F0 of float [4, 2] comes instead of 0SEND_F0 of float [3, 2], as in" + advice);
  EXPECT_EQ(refusal([&] {
              send(1, 1, torch::ones({3, 2}, torch::kDouble));
            }),
            "0SEND_F1 of double [3, 2] comes instead of 0SEND_F0 of float [3, 2], as in" + advice);
  EXPECT_EQ(refusal([&] { ranks_[0]->end_step(pipeline); }),
            "rank 0 has sent 0 messages to rank 1 instead of 2, as in" + advice);
  EXPECT_EQ(refusal([&] {
              for (int i = 0; i < 3; ++i) send(1, i, torch::ones({3, 2}));
            }),
            "0SEND_F2 of float [3, 2] comes after all 2 messages of" + advice);
  for (const auto& rank : ranks_) rank->abort("the end of the test");
}

TEST_F(StaticSteps, end_where_messages_are_missing) {
  step_of(0, 2);
  std::string text;
  both([&](int rank) {
    begin(rank, 1);
    if (rank == 0) send(1, 0, torch::ones({3, 2}));
    if (rank == 1) receive(1, 0);
    try {
      ranks_[index(rank)]->confirm_step();
      ranks_[index(rank)]->end_step(pipeline);
    } catch (const ConfigError& error) {
      if (rank == 0) text = error.what();
    }
  });
  EXPECT_EQ(text.find("rank 0 has sent 1 messages to rank 1 instead of 2, as in the first step"), 0U) << text;
  for (const auto& rank : ranks_) rank->abort("the end of the test");
}

TEST_F(StaticSteps, wait_for_a_sender_that_does_not_come_until_the_world_ends) {
  step_of(0, 2);
  both([&](int rank) { begin(rank, 1); });
  both([&](int rank) {
    if (rank == 0) return ranks_[0]->abort("rank 0 has stopped");
    EXPECT_THROW(ranks_[1]->confirm_step(), WorldAborted);
  });
}

/// Trainings with static_shapes.
class StaticShapes : public testing::Test {
 protected:
  void SetUp() override { stream_order().take_violations(); }
  void TearDown() override { EXPECT_EQ(stream_order().take_violations(), std::vector<std::string>{}); }
};

TEST_F(StaticShapes, every_schedule_equals_the_cpu) { compare_deep_jobs(stream_groups(), true); }
TEST_F(StaticShapes, skips_ties_and_recompute_equal_the_cpu) {
  compare_u_jobs({.stages = 2}, 5, stream_groups(), true);
}
TEST_F(StaticShapes, replicas_equal_the_cpu) { compare_u_jobs({.stages = 2, .replicas = 2}, 2, stream_groups(), true); }

TEST_F(StaticShapes, of_whatever_else_a_program_does_equal_announced_ones) {
  const auto train = [](bool static_shapes) {
    JoinedWorld joined({.stages = 2}, stream_groups());
    return state_after_whatever_else(joined.world, {.static_shapes = static_shapes});
  };
  const auto announced = train(false), unannounced = train(true);
  for (const auto& [name, tensor] : announced) EXPECT_TRUE(torch::equal(tensor, unannounced.at(name))) << name;
}

TEST_F(StaticShapes, need_no_announcements_and_no_memory_after_two_steps) {
  constexpr int micro_batches = 4, stages = 2;
  const auto costs_of_steps = [&](bool static_shapes, bool refuses) {
    JoinedWorld joined({.stages = stages}, stream_groups());
    DeepNetwork network;
    Pipeline trained(
        joined.world, network, cross_entropy,
        {.micro_batches = micro_batches, .static_shapes = static_shapes, .device = "test", .compare_batches = 0});
    trained.optimize_with([](const auto& parameters) { return torch::optim::SGD(parameters, 0.1); });
    const torch::Tensor inputs = torch::randn({8, 6}), targets = torch::arange(8) % 4;
    std::vector<MessageCosts> costs;
    for (int step = 0; step < 5; ++step) {
      trained.train_step(inputs, targets, {.refuse_invalid_loss = refuses}).wait();
      MessageCosts all;
      for (WorldRank rank(0); rank.value() < stages; rank = rank.next()) {
        const MessageCosts of_rank = joined.world.context(rank).endpoint->message_costs();
        all.sent += of_rank.sent;
        all.allocated += of_rank.allocated;
      }
      costs.push_back(all);
    }
    return costs;
  };
  for (const bool refuses : {false, true}) {
    const auto announced = costs_of_steps(false, refuses), unannounced = costs_of_steps(true, refuses);
    for (const std::size_t step : {3, 4}) {
      const std::uint64_t with = announced[step].sent - announced[step - 1].sent;
      EXPECT_EQ(with - (unannounced[step].sent - unannounced[step - 1].sent), stages * (micro_batches - 1U))
          << "each rank announces its messages, or says at the end that all have been sent";
      EXPECT_GT(announced[step].allocated, announced[step - 1].allocated);
      EXPECT_EQ(unannounced[step].allocated, unannounced[step - 1].allocated) << step;
    }
  }
}

TEST_F(StaticShapes, a_loss_that_is_refused_ends_the_world_and_is_named) {
  JoinedWorld joined({.stages = 2}, stream_groups());
  DeepNetwork network;
  Pipeline trained(joined.world, network, cross_entropy, {.micro_batches = 3, .static_shapes = true, .device = "test"});
  trained.optimize_with([](const auto& parameters) { return torch::optim::SGD(parameters, 0.1); });
  torch::Tensor inputs = torch::randn({9, 6});
  const torch::Tensor targets = torch::arange(9) % 4;
  const StepOptions refusing{.refuse_invalid_loss = true};
  for (int step = 0; step < 2; ++step) EXPECT_GT(trained.train_step(inputs, targets, refusing).loss(), 0);
  inputs[4][2] = std::nan("");
  try {
    trained.train_step(inputs, targets, refusing).wait();
    FAIL();
  } catch (const RankFailure& error) {
    EXPECT_STREQ(error.what(), "rank 1 (stage 1) failed at 1F1 of step 2: the loss is nan");
  }
}

TEST_F(StaticShapes, are_refused_by_transports_that_announce_nothing) {
  World world({.stages = 2});
  DeepNetwork network;
  try {
    Pipeline(world, network, cross_entropy, {.micro_batches = 4, .static_shapes = true});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "static shapes leave out what announces messages over nccl, and the transport is threads, which "
                 "announces none: leave out static_shapes (--static-shapes)");
  }
}

}  // namespace
}  // namespace penstock::test::static_steps_test
