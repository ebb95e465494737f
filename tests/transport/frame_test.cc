#include "penstock/transport/frame.h"

#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(Frame, IsWholeAlignedUnitsWithZeroPadding) {
  for (const std::size_t bytes : {0, 1, 63, 64, 65, 1000, 300000}) {
    const Frame frame(bytes);
    EXPECT_EQ(frame.size(), bytes == 0 ? 64U : (bytes + 63) / 64 * 64);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(frame.data()) % 64, 0U);
    for (std::size_t i = bytes; i < frame.size(); ++i) EXPECT_EQ(frame.data()[i], std::byte{0});
  }
}

TEST(FramePool, GivesTheSameMemoryAgainForAboutTheSameSize) {
  const auto pool = std::make_shared<FramePool>();
  const std::byte* first = Frame(1 << 20, pool).data();
  EXPECT_GE(pool->free_bytes(), 1U << 20);
  const Frame again((1 << 20) - 100, pool);
  EXPECT_EQ(again.data(), first);
  EXPECT_EQ(pool->free_bytes(), 0U);
}

TEST(FramePool, HoldsNoMoreThanWasEverUsedAtOnce) {
  const auto pool = std::make_shared<FramePool>();
  for (std::size_t i = 1; i <= 40; ++i) {
    Frame frame(i * 10000, pool);
    EXPECT_LE(pool->free_bytes() + frame.size(), i * 10000 * 9 / 8 + 64);
  }
}

TEST(FramePool, LivesAsLongAsItsFrames) {
  auto pool = std::make_shared<FramePool>();
  const std::weak_ptr<FramePool> watched = pool;
  {
    Frame frame(5000, std::exchange(pool, nullptr));
    EXPECT_FALSE(watched.expired());
    Frame moved = std::move(frame);
    moved.data()[4999] = std::byte{1};
  }
  EXPECT_TRUE(watched.expired());
}

TEST(FramePool, ServesManyThreads) {
  const auto pool = std::make_shared<FramePool>();
  std::vector<std::thread> threads;
  for (unsigned char mark = 0; mark < 4; ++mark)
    threads.emplace_back([&pool, mark] {
      for (int i = 0; i < 2000; ++i) {
        std::vector<Frame> frames;
        for (std::size_t size : {100, 5000, 100}) {
          frames.emplace_back(size, pool);
          frames.back().data()[0] = std::byte{mark};
        }
        for (const Frame& frame : frames) EXPECT_EQ(frame.data()[0], std::byte{mark});
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace penstock
