#include "penstock/model/sequence_memory.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/model/random_place.h"
#include "tests/base/error_text.h"

namespace penstock::test::sequence_memory_test {
namespace {

TEST(SequenceMemory, is_null_unless_it_is_set) {
  EXPECT_EQ(SequenceMemory::current(), nullptr);
  SequenceMemory memory;
  {
    const SequenceMemoryGuard guard(&memory);
    EXPECT_EQ(SequenceMemory::current(), &memory);
    {
      const SequenceMemoryGuard none(nullptr);
      EXPECT_EQ(SequenceMemory::current(), nullptr);
    }
    EXPECT_EQ(SequenceMemory::current(), &memory);
  }
  EXPECT_EQ(SequenceMemory::current(), nullptr);
}

TEST(SequenceMemory, keeps_the_tensors_of_each_call) {
  SequenceMemory memory;
  RandomPlace place;
  const RandomPlaceGuard guard(place);
  place.call = "block0.mix";
  auto& first = memory.of_call();
  EXPECT_TRUE(first.empty());
  first.push_back(torch::ones({2}));
  place.call = "block1.mix";
  EXPECT_TRUE(memory.of_call().empty());
  place.call = "block0.mix";
  EXPECT_EQ(&memory.of_call(), &first);
}

TEST(SequenceMemory, is_available_only_in_calls_of_a_pipeline) {
  SequenceMemory memory;
  EXPECT_TRUE(says(error_text<InternalError>([&] { memory.of_call(); }), "outside a pipeline's call"));
}

}  // namespace
}  // namespace penstock::test::sequence_memory_test
