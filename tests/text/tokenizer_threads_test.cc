#include <gtest/gtest.h>

#include <thread>

#include "penstock/text/tokenizer.h"
#include "tests/text/small_tokenizer.h"

namespace penstock::test::tokenizer_threads_test {
namespace {

using Ids = std::vector<std::int64_t>;

// One of them has the words that are remembered; the others do without.
TEST(TokenizerThreads, share_a_tokenizer) {
  const auto shared = Tokenizer::from_json(small_tokenizer().dump());
  std::string text;
  for (int i = 0; i < 2000; ++i) text += i % 3 == 0 ? "abcd " : i % 7 == 0 ? "ab<|x|>" : "dcba";
  const Ids expected = shared->encode(text);
  std::vector<Ids> found(4);
  std::vector<std::thread> threads;
  for (Ids& ids : found) threads.emplace_back([&] { ids = shared->encode(text); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : found) EXPECT_EQ(ids, expected);
}

}  // namespace
}  // namespace penstock::test::tokenizer_threads_test
