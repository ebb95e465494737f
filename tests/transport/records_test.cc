#include "penstock/transport/records.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/transport/processes/wire.h"
#include "tests/base/error_text.h"

namespace penstock::records_test {
using namespace transport;
namespace {

struct Pair {
  static constexpr std::string_view record_name = "Pair";
  double a = 0;
  std::int64_t b = 0;
};

struct Triple {
  static constexpr std::string_view record_name = "Triple";
  double a = 0, b = 0, c = 0;
};

Message sent(Message message) {
  return processes::decode(processes::encode({}, prepare_for_send(std::move(message)))).second;
}

std::string error_of(const std::function<void()>& call) {
  return test::error_text<InternalError>([&] { call(); });
}

TEST(Records, carry_records_numbers_and_text_in_one_message) {
  const std::vector<Pair> pairs{{1.5, -2}, {3.25, 1LL << 60}};
  const Message message = sent(message_of(pairs, 7.5, std::string("a\0b", 3), std::vector<std::int64_t>{}));
  const auto read = records_in<Pair>(message);
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].a, 1.5);
  EXPECT_EQ(read[0].b, -2);
  EXPECT_EQ(read[1].a, 3.25);
  EXPECT_EQ(read[1].b, 1LL << 60);
  EXPECT_EQ(record_in<double>(message, 1), 7.5);
  EXPECT_EQ(text_in(message, 2), std::string("a\0b", 3));
  EXPECT_TRUE(records_in<std::int64_t>(message, 3).empty());
}

TEST(Records, name_the_record_whose_size_disagrees) {
  const Message message = sent(message_of(Pair{1, 2}));
  EXPECT_EQ(error_of([&] { records_in<Triple>(message); }),
            "records Triple of 24 bytes came as 16 bytes: do all ranks run the same build?");
  EXPECT_EQ(error_of([&] { record_in<Pair>(message_of(std::vector<Pair>(3))); }),
            "one record Pair was expected, 3 came: do all ranks run the same build?");
  EXPECT_EQ(error_of([&] { record_in<double>(message); }),
            "one record number was expected, 2 came: do all ranks run the same build?");
}

TEST(Records, refuse_a_message_without_their_payload) {
  EXPECT_EQ(error_of([] { text_in({}); }),
            "a message of 0 payloads where payload 0 was expected: do all ranks run the same build?");
  for (const torch::Tensor& other : {torch::Tensor(), torch::empty({16})})
    EXPECT_EQ(error_of([&] {
                record_in<Pair>({{{other}}, 0, 0});
              }),
              "a payload without records or text, where one was expected: do all ranks run the same build?");
}

}  // namespace
}  // namespace penstock::records_test
