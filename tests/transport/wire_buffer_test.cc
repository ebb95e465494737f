#include "penstock/transport/processes/wire_buffer.h"

#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace penstock::wire_buffer_test {
using namespace processes;
namespace {

TEST(WireBuffer, has_aligned_units_with_zero_padding) {
  for (const std::size_t bytes : {0, 1, 63, 64, 65, 1000, 300000}) {
    const WireBuffer buffer(bytes);
    EXPECT_EQ(buffer.size(), bytes == 0 ? 64U : (bytes + 63) / 64 * 64);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
    for (std::size_t i = bytes; i < buffer.size(); ++i) EXPECT_EQ(buffer.data()[i], std::byte{0});
  }
}

TEST(WireBufferPool, reuses_memory_for_about_the_same_size) {
  const auto pool = std::make_shared<WireBufferPool>();
  const std::byte* first = WireBuffer(1 << 20, pool).data();
  EXPECT_GE(pool->free_bytes(), 1U << 20);
  const WireBuffer again((1 << 20) - 100, pool);
  EXPECT_EQ(again.data(), first);
  EXPECT_EQ(pool->free_bytes(), 0U);
}

TEST(WireBufferPool, has_no_more_than_twice_what_was_used_at_one_time) {
  const auto pool = std::make_shared<WireBufferPool>();
  for (std::size_t i = 1; i <= 40; ++i) {
    WireBuffer buffer(i * 10000, pool);
    EXPECT_LE(pool->free_bytes() + buffer.size(), 2 * (i * 10000 * 9 / 8 + 64));
  }
}

TEST(WireBufferPool, allocates_nothing_for_a_step_like_the_one_before) {
  // Values, then gradients, with short messages between them. All of one kind are used at one time.
  const auto pool = std::make_shared<WireBufferPool>();
  std::uint64_t after_first = 0;
  for (int step = 0; step < 5; ++step) {
    for (const std::size_t bytes : {40'000, 30'000}) {
      std::vector<WireBuffer> buffers;
      for (int i = 0; i < 4; ++i) buffers.emplace_back(bytes, pool);
      const WireBuffer status(100, pool);
    }
    if (step == 0) after_first = pool->allocations();
  }
  EXPECT_EQ(pool->allocations(), after_first);
  EXPECT_EQ(after_first, 9U);
}

TEST(WireBufferPool, frees_the_size_that_was_not_used_for_the_longest_time) {
  const auto pool = std::make_shared<WireBufferPool>();
  for (const std::size_t bytes : {50'000, 40'000, 50'000}) WireBuffer(bytes, pool).data();
  EXPECT_EQ(pool->allocations(), 2U);
  const WireBuffer new_size(30'000, pool);  // 120'000 bytes of at most 100'000
  const WireBuffer kept(50'000, pool);
  EXPECT_EQ(pool->allocations(), 3U);
  const WireBuffer freed(40'000, pool);
  EXPECT_EQ(pool->allocations(), 4U);
}

TEST(WireBufferPool, lives_as_long_as_its_buffers) {
  auto pool = std::make_shared<WireBufferPool>();
  const std::weak_ptr<WireBufferPool> watched = pool;
  {
    WireBuffer buffer(5000, std::exchange(pool, nullptr));
    EXPECT_FALSE(watched.expired());
    WireBuffer moved = std::move(buffer);
    moved.data()[4999] = std::byte{1};
  }
  EXPECT_TRUE(watched.expired());
}

TEST(WireBufferPool, serves_many_threads) {
  const auto pool = std::make_shared<WireBufferPool>();
  std::vector<std::thread> threads;
  for (unsigned char mark = 0; mark < 4; ++mark)
    threads.emplace_back([&pool, mark] {
      for (int i = 0; i < 2000; ++i) {
        std::vector<WireBuffer> buffers;
        for (std::size_t size : {100, 5000, 100}) {
          buffers.emplace_back(size, pool);
          buffers.back().data()[0] = std::byte{mark};
        }
        for (const WireBuffer& buffer : buffers) EXPECT_EQ(buffer.data()[0], std::byte{mark});
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace penstock::wire_buffer_test
