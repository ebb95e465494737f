#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/transport/mailbox.h"
#include "penstock/transport/transport.h"
#include "tests/base/error_text.h"

namespace penstock::inproc_test {
namespace {

using namespace std::chrono_literals;

Message message_of(const torch::Tensor& tensor) { return {{{tensor, false}}}; }

TEST(Threads, share_the_storage_of_messages) {
  const auto ranks = open_threads(2, {});
  const torch::Tensor plain = torch::rand({64, 32});
  const torch::Tensor permuted = torch::rand({2, 3, 8, 8}).contiguous(torch::MemoryFormat::ChannelsLast);
  const torch::Tensor computed = torch::rand({8, 8}, torch::requires_grad()).mul(2);
  ranks[0]->send(WorldRank(1), {}, {{{plain, false}, {permuted, false}, {computed, true}}});
  const Message got = ranks[1]->receive(WorldRank(0), {}, "1RECV_F0");
  EXPECT_EQ(got.payloads[0].tensor.data_ptr(), plain.data_ptr());
  EXPECT_EQ(got.payloads[1].tensor.data_ptr(), permuted.data_ptr());
  EXPECT_EQ(got.payloads[2].tensor.data_ptr(), computed.data_ptr());
}

TEST(Threads, do_not_keep_a_large_storage_alive_for_a_small_view) {
  const auto ranks = open_threads(1, {});
  ranks[0]->send(WorldRank(0), {}, message_of(torch::rand({1000, 100})[7]));
  const Message got = ranks[0]->receive(WorldRank(0), {}, "0RECV_F0");
  EXPECT_EQ(got.payloads[0].tensor.storage().nbytes(), 400U);
}

TEST(Threads, a_wait_for_a_rank_without_progress_ends) {
  const auto ranks = open_threads(2, {.stall_limit = 60ms});
  ranks[0]->report_progress({"0F5"});
  const std::string text = test::error_text<TransportError>([&] { ranks[1]->receive(WorldRank(0), {}, "1RECV_F5"); });
  EXPECT_TRUE(text.starts_with("rank 1 waits for 1RECV_F5 from rank 0, which is at 0F5 since ")) << text;
  EXPECT_TRUE(text.ends_with("(no progress for 0.06 s, the stall limit)")) << text;
}

TEST(Threads, an_error_names_a_rank_that_has_left) {
  auto ranks = open_threads(2, {.deadline = 40ms});
  ranks[0].reset();
  const std::string text = test::error_text<TransportError>([&] { ranks[1]->receive(WorldRank(0), {}, "1RECV_F5"); });
  EXPECT_NE(text.find("rank 0, which has left the world"), std::string::npos) << text;
}

TEST(Threads, two_worlds_have_separate_messages) {
  const auto one = open_threads(1, {});
  const auto other = open_threads(1, {});
  one[0]->send(WorldRank(0), {}, message_of(torch::full({1}, 1)));
  other[0]->send(WorldRank(0), {}, message_of(torch::full({1}, 2)));
  one[0]->abort("only this one");
  EXPECT_EQ(other[0]->receive(WorldRank(0), {}, "").payloads[0].tensor.item<int>(), 2);
}

TEST(Threads, impossible_worlds_are_an_error) {
  EXPECT_THROW(open_threads(0, {}), ConfigError);
  EXPECT_THROW(open_threads(2, {.deadline = 0ms}), ConfigError);
}

}  // namespace
}  // namespace penstock::inproc_test
