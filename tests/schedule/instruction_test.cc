#include "penstock/schedule/instruction.h"

#include <gtest/gtest.h>

#include <limits>

#include "penstock/base/error.h"
#include "penstock/schedule/text.h"
#include "tests/base/error_text.h"

namespace penstock::instruction_test {
namespace {

TEST(Instruction, is_written_in_the_notation_of_the_papers) {
  EXPECT_EQ(to_string(Instruction::compute(Op::forward, StageId(2), MicroBatch(0))), "2F0");
  EXPECT_EQ(to_string(Instruction::compute(Op::input_grad, StageId(2), MicroBatch(13))), "2I13");
  EXPECT_EQ(to_string(Instruction::fused_weight_grad(StageId(0), MicroBatch(0), MicroBatch(7))), "0W0-7");
  EXPECT_EQ(to_string(Instruction::step_wide(Op::reduce, StageId(5))), "5REDUCE");
}

TEST(Instruction, names_the_peer_only_for_skip_links) {
  const auto message = [](Op op, int stage, int peer) {
    return to_string(Instruction::message(op, StageId(stage), StageId(peer), MicroBatch(1)));
  };
  EXPECT_EQ(message(Op::send_forward, 0, 1), "0SEND_F1");
  EXPECT_EQ(message(Op::send_forward, 0, 3), "0SEND_F1>3");
  EXPECT_EQ(message(Op::recv_forward, 3, 0), "3RECV_F1<0");
  EXPECT_EQ(message(Op::send_backward, 3, 0), "3SEND_B1>0");
  EXPECT_EQ(message(Op::recv_backward, 0, 3), "0RECV_B1<3");
  EXPECT_EQ(message(Op::recv_backward, 0, 1), "0RECV_B1");
}

TEST(Instruction, a_W_over_one_micro_batch_is_a_plain_W) {
  EXPECT_EQ(Instruction::fused_weight_grad(StageId(1), MicroBatch(3), MicroBatch(3)),
            Instruction::compute(Op::weight_grad, StageId(1), MicroBatch(3)));
}

TEST(Instruction, every_instruction_reads_back) {
  for (const char* instruction :
       {"2F0", "2B0", "2I0", "2W0", "0W0-7", "0SEND_F1", "1RECV_F1", "1SEND_B1", "0RECV_B1", "0SEND_F1>3", "3RECV_F1<0",
        "3SEND_B1>0", "0RECV_B1<3", "0REDUCE", "0NORM", "0STEP", "65535F2147483647"})
    EXPECT_EQ(to_string(parse_instruction(instruction)), instruction);
}

struct Wrong {
  const char* instruction;
  const char* error;
};

TEST(Instruction, errors_name_the_column) {
  const Wrong cases[] = {
      {"", "'', column 1: a number is expected"},
      {"F0", "column 1: a number is expected"},
      {"2", "column 2: expected the letters of an instruction"},
      {"2X0", "column 2: 'X' is not an instruction"},
      {"2f0", "column 2: expected the letters of an instruction"},
      {"2F", "column 3: a number is expected"},
      {"02F0", "column 1: a number without leading zeros"},
      {"2F01", "column 3: a number without leading zeros"},
      {"+2F0", "column 1: a number is expected"},
      {"2F-1", "column 3: a number is expected"},
      {"2F0 ", "column 4: ' ' follows the instruction"},
      {"2F0-3", "column 4: '-3' follows the instruction"},
      {"65536F0", "column 1: a number of at most 65535"},
      {"2F2147483648", "column 3: a number of at most 2147483647"},
      {"2F99999999999999999999", "column 3: a number of at most 2147483647"},
      {"0W3-3", "column 5: the range of a fused W must ascend"},
      {"0W3-1", "column 5: the range of a fused W must ascend"},
      {"0STEP1", "column 6: '1' follows the instruction"},
      {"0SEND_B1", "column 9: stage 0 has no neighbour on that side"},
      {"0SEND_F1>1", "column 9: the neighbour 1 is not named"},
      {"3SEND_F1>2", "column 9: SEND_F of stage 3 cannot have stage 2 at its other end"},
      {"3SEND_F1>3", "column 9: SEND_F of stage 3 cannot have stage 3 at its other end"},
      {"0SEND_F1<3", "column 9: '<3' follows the instruction"},
      {"65535SEND_F1", "column 13: stage 65535 has no neighbour on that side"},
  };
  for (const Wrong& wrong : cases) {
    const std::string text = test::error_text<DataError>([&] { parse_instruction(wrong.instruction); });
    EXPECT_TRUE(test::says(text, wrong.error)) << wrong.instruction << ": " << text;
  }
}

TEST(Instruction, the_longest_text_fits) {
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
  const StageId last(max_stages - 1);
  const Instruction message = Instruction::message(Op::send_backward, last, StageId(max_stages - 3), MicroBatch(most));
  EXPECT_EQ(instruction_text(message).view(), "65535SEND_B2147483647>65533");
  const Instruction fused = Instruction::fused_weight_grad(last, MicroBatch(most - 1), MicroBatch(most));
  EXPECT_EQ(instruction_text(fused).view(), "65535W2147483646-2147483647");
  EXPECT_EQ(instruction_text(fused).letters.back(), '\0') << "there is space for an end";
}

}  // namespace
}  // namespace penstock::instruction_test
