// The guarantees of data_plane.h, for every transport.
#include <algorithm>
#include <random>
#include <thread>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/transport/processes/wire.h"
#include "tests/transport/world_under_test.h"

namespace penstock::test::data_plane_conformance_test {
namespace {

/// The number of the running test, for tags: in a world of processes all tests share one transport.
std::uint64_t test_number() {
  static std::uint64_t tests = 0;
  static const void* current = nullptr;
  const void* test = ::testing::UnitTest::GetInstance()->current_test_info();
  if (std::exchange(current, test) != test) ++tests;
  return tests;
}

Tag tag_of(std::uint64_t step, int number) {
  return {.pipeline = pipeline_under_test, .traffic = Traffic::forward, .step = step, .micro_batch = number};
}

void expect_equal(const torch::Tensor& got, const torch::Tensor& sent) {
  ASSERT_EQ(got.defined(), sent.defined());
  if (!sent.defined()) return;
  EXPECT_EQ(got.scalar_type(), sent.scalar_type());
  EXPECT_EQ(got.sizes(), sent.sizes());
  EXPECT_FALSE(got.requires_grad());
  if (sent.numel() > 0) {
    EXPECT_TRUE(got.cpu().equal(sent)) << got.cpu() << sent;
  }
}

/// With every transport a tensor arrives as prepare_for_send returns it, so that computing on it gives the same bits.
void expect_same_layout(const torch::Tensor& got, const torch::Tensor& prepared) {
  EXPECT_EQ(got.strides(), prepared.strides());
  EXPECT_TRUE(got.numel() == 0 || got.is_non_overlapping_and_dense());
  EXPECT_TRUE(got.numel() == 0 || !got.is_cpu() || reinterpret_cast<std::uintptr_t>(got.data_ptr()) % 64 == 0);
}

class DataPlaneConformance : public ::testing::TestWithParam<WorldUnderTest> {
 protected:
  /// What rank `from` sends to rank `to`, computed on `device`.
  using MessageOf = std::function<Message(int from, int to, c10::Device device)>;

  /// Every rank sends a message to every rank, itself included, from its device, and checks what it gets.
  void exchange(const MessageOf& message) {
    const std::uint64_t step = test_number();
    GetParam().each_rank([&](Transport& transport) {
      const int own = transport.rank().value();
      for (int to = 0; to < transport.size(); ++to)
        transport.send(WorldRank(to), tag_of(step, 0), message(own, to, GetParam().device(own)));
      for (int from = transport.size() - 1; from >= 0; --from) {
        const Message got = transport.receive(WorldRank(from), tag_of(step, 0), "0RECV_F0");
        const Message sent = message(from, own, c10::kCPU);
        ASSERT_EQ(got.payloads.size(), sent.payloads.size());
        for (std::size_t i = 0; i < sent.payloads.size(); ++i) {
          expect_equal(got.payloads[i].tensor, sent.payloads[i].tensor);
          EXPECT_EQ(got.payloads[i].requires_grad, sent.payloads[i].requires_grad);
          if (!sent.payloads[i].tensor.defined()) continue;
          EXPECT_EQ(got.payloads[i].tensor.device(), GetParam().arrives_on(own));
          expect_same_layout(got.payloads[i].tensor, prepare_for_send(sent.payloads[i].tensor));
        }
        EXPECT_GT(got.sent_ns, 0);
        EXPECT_GE(got.arrived_ns, got.sent_ns);
      }
    });
  }
};

torch::Tensor numbers(torch::IntArrayRef shape, int offset, c10::Device device) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return (torch::arange(count) + offset).reshape(shape).to(device);
}

TEST_P(DataPlaneConformance, carries_every_type_in_every_shape) {
  using enum torch::ScalarType;
  const std::vector<std::vector<std::int64_t>> shapes = {{},  {1},    {0},          {3, 0, 2},
                                                         {5}, {4, 7}, {2, 3, 5, 4}, {1, 1, 9000}};
  exchange([&](int from, int to, c10::Device device) {
    Message message;
    for (const auto type :
         {Bool, Byte, Char, Short, Int, Long, Half, BFloat16, Float, Double, ComplexFloat, ComplexDouble})
      for (const auto& shape : shapes) {
        torch::Tensor values = numbers(shape, 10 * from + to, device);
        if (type == Bool) values = values % 3;
        message.payloads.push_back({(values % 100).to(type), shape.size() % 2 == 0});
      }
    return message;
  });
}

TEST_P(DataPlaneConformance, carries_a_message_without_payloads) {
  exchange([](int, int, c10::Device) { return Message{}; });
}

TEST_P(DataPlaneConformance, carries_undefined_tensors_between_values) {
  exchange([](int from, int, c10::Device device) {
    return Message{{{torch::Tensor(), true}, {torch::full({3}, from, device), false}, {torch::Tensor(), false}}};
  });
}

TEST_P(DataPlaneConformance, keeps_layouts) {
  exchange([](int from, int to, c10::Device device) {
    const torch::Tensor image = numbers({2, 3, 8, 8}, from + to, device).to(torch::kFloat);
    const torch::Tensor wide = numbers({64, 100}, from, device).to(torch::kFloat);
    Message message;
    for (const torch::Tensor& tensor : {
             image.contiguous(torch::MemoryFormat::ChannelsLast),
             wide.t(),
             wide.slice(1, 0, 50),                            // gaps
             wide.slice(0, 10, 12),                           // a small part of a large storage
             wide.flatten().slice(0, 1, 6000),                // begins at an odd address
             torch::full({1}, from, device).expand({6, 5}),   // overlaps
             torch::complex(wide, wide + 1).conj(),           // conjugated only on reading
             torch::imag(torch::complex(wide, wide).conj()),  // negated only on reading
             image.permute({3, 1, 0, 2}),
             image.select(0, 1),
         })
      message.payloads.push_back({tensor, false});
    return message;
  });
}

TEST_P(DataPlaneConformance, detaches_sent_tensors) {
  exchange([](int, int, c10::Device device) {
    const auto leaf = torch::ones({4, 4}, torch::requires_grad().device(device));
    return Message{{{leaf * 2, true}, {leaf, true}}};
  });
}

TEST_P(DataPlaneConformance, carries_a_large_message_among_small_ones) {
  exchange([](int from, int to, c10::Device device) {
    return Message{{{numbers({from == 0 ? 1 << 20 : 3}, to, device).to(torch::kFloat), false}}};
  });
}

TEST_P(DataPlaneConformance, receives_in_any_order) {
  constexpr int messages = 60;
  const std::uint64_t step = test_number();
  GetParam().each_rank([&](Transport& transport) {
    const int own = transport.rank().value();
    std::mt19937 random(static_cast<unsigned>(own));
    std::vector<std::pair<int, int>> all;  // peer, number
    for (int peer = 0; peer < transport.size(); ++peer)
      for (int i = 0; i < messages; ++i) all.emplace_back(peer, i);
    std::shuffle(all.begin(), all.end(), random);
    for (const auto& [to, i] : all) {
      transport.report_progress({"0F0"});
      transport.send(WorldRank(to), tag_of(step, i),
                     {{{torch::full({i + 1}, 1000 * own + i, GetParam().device(own)), false}}});
    }
    std::shuffle(all.begin(), all.end(), random);
    for (const auto& [from, i] : all) {
      const Message got = transport.receive(WorldRank(from), tag_of(step, i), "0RECV_F0");
      ASSERT_EQ(got.payloads.size(), 1U);
      EXPECT_TRUE(got.payloads[0].tensor.cpu().equal(torch::full({i + 1}, 1000 * from + i)));
    }
  });
}

TEST_P(DataPlaneConformance, knows_what_has_arrived) {
  const std::uint64_t step = test_number();
  GetParam().each_rank([&](Transport& transport) {
    const auto tag = [&](int number) { return control_tag(pipeline_under_test, Topic::gathering, 10 * step + number); };
    for (int peer = 0; peer < transport.size(); ++peer)
      transport.send(WorldRank(peer), tag(0), {{{torch::full({3}, peer), false}}});
    for (WorldRank peer(0); peer.value() < transport.size(); peer = peer.next()) {
      while (!transport.has_arrived(peer, tag(0))) std::this_thread::yield();
      EXPECT_FALSE(transport.has_arrived(peer, tag(1))) << "no rank sends it";
      transport.receive(peer, tag(0), "a message");
      EXPECT_FALSE(transport.has_arrived(peer, tag(0)));
    }
  });
}

TEST_P(DataPlaneConformance, carries_long_messages_of_changing_sizes) {
  // Several of them are under way at once, both ways, and a receive for one may have been posted for another one.
  const std::vector<std::int64_t> sizes = {3000, 3000, 2000, 40'000, 40'000, 9, 3000, 2'000'000, 3000, 3000, 50'000};
  const std::uint64_t step = test_number();
  GetParam().each_rank([&](Transport& transport) {
    const int own = transport.rank().value();
    const auto message = [&](int from, std::size_t i, c10::Device device) {
      return numbers({sizes[i]}, 100 * from + static_cast<int>(i), device);
    };
    for (std::size_t i = 0; i < sizes.size(); ++i)
      for (int to = 0; to < transport.size(); ++to)
        transport.send(WorldRank(to), tag_of(step, static_cast<int>(i)),
                       {{{message(own, i, GetParam().device(own)), false}}});
    for (std::size_t i = 0; i < sizes.size(); ++i)
      for (int from = 0; from < transport.size(); ++from) {
        const Message got = transport.receive(WorldRank(from), tag_of(step, static_cast<int>(i)), "0RECV_F0");
        ASSERT_EQ(got.payloads.size(), 1U);
        EXPECT_TRUE(got.payloads[0].tensor.cpu().equal(message(from, i, c10::kCPU)))
            << sizes[i] << " numbers from rank " << from;
      }
  });
}

TEST_P(DataPlaneConformance, describes_messages_that_recur_once) {
  // A step of two micro-batches, the second of which is smaller and of another type, sent three times to the next rank.
  const std::uint64_t step = test_number();
  GetParam().each_rank([&](Transport& transport) {
    const int own = transport.rank().value(), ranks = transport.size();
    const WorldRank next((own + 1) % ranks), last((own + ranks - 1) % ranks);
    const auto message = [&](int from, int number, c10::Device device) {
      const torch::Tensor values = numbers({7 - 3 * (number % 2), 11, 2}, from + number, device);
      return Message{{{number % 2 == 0 ? values.to(torch::kFloat) : values, number % 2 == 0}}};
    };
    MessageCosts after_first;
    for (int number = 0; number < 6; ++number) {
      transport.send(next, tag_of(step, number), message(own, number, GetParam().device(own)));
      const Message got = transport.receive(last, tag_of(step, number), "0RECV_F0");
      const Message sent = message(last.value(), number, c10::kCPU);
      expect_equal(got.payloads.at(0).tensor, sent.payloads[0].tensor);
      EXPECT_EQ(got.payloads[0].requires_grad, sent.payloads[0].requires_grad);
      // What the next rank has received has been counted here.
      Tag received = control_tag(pipeline_under_test, Topic::state, step);
      received.micro_batch = number;
      transport.send(last, received, {});
      transport.receive(next, received, "the answer");
      if (number == 1) after_first = transport.message_costs();
    }
    const MessageCosts costs = transport.message_costs();
    EXPECT_EQ(costs.described, after_first.described);
    EXPECT_GE(costs.sent - after_first.sent, GetParam().encodes ? 4U : 0U);
    EXPECT_EQ(after_first.described > 0, GetParam().encodes);
  });
}

TEST_P(DataPlaneConformance, carries_one_tag_from_many_ranks_and_both_ways_at_once) {
  exchange([](int from, int to, c10::Device device) {
    return Message{{{torch::full({2}, 100 * from + to, device), false}}};
  });
}

TEST_P(DataPlaneConformance, rejects_tensors_that_cannot_be_sent) {
  GetParam().each_rank([&](Transport& transport) {
    const Message sparse{{{torch::eye(3).to_sparse(), false}}};
    EXPECT_THROW(transport.send(transport.rank(), {}, sparse), TransportError);
    EXPECT_THROW(transport.send(WorldRank(transport.size()), {}, {}), TransportError);
    EXPECT_THROW(transport.receive(WorldRank(-1), {}, "nothing"), TransportError);
    EXPECT_EQ(transport.aborted(), std::nullopt);
  });
}

INSTANTIATE_TEST_SUITE_P(World, DataPlaneConformance, ::testing::ValuesIn(worlds_under_test()),
                         [](const auto& world) { return world.param.name; });

}  // namespace
}  // namespace penstock::test::data_plane_conformance_test
