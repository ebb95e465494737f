#include "penstock/transport/wire_buffer.h"

#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace penstock::wire_buffer_test {
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

TEST(WireBufferPool, caches_no_more_than_was_used_at_one_time) {
  const auto pool = std::make_shared<WireBufferPool>();
  for (std::size_t i = 1; i <= 40; ++i) {
    WireBuffer buffer(i * 10000, pool);
    EXPECT_LE(pool->free_bytes() + buffer.size(), i * 10000 * 9 / 8 + 64);
  }
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
