#include "penstock/checkpoint/manifest.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace penstock::checksum_test {
namespace {

// From the program xxh128sum of the library's authors.
TEST(Checksum, is_the_one_of_other_programs) {
  EXPECT_EQ(to_string(checksum_of("")), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(to_string(checksum_of("penstock")), "c6932a2f07b073d6763ffab4001f7bdf");
}

RC_GTEST_PROP(Checksum, reads_back_and_adds_up, (const std::string& text, const std::string& more)) {
  RunningChecksum sum;
  sum.add(std::as_bytes(std::span(text)));
  sum.add(std::as_bytes(std::span(more)));
  RC_ASSERT(sum.result() == checksum_of(text + more));
  RC_ASSERT(checksum_from(to_string(sum.result())) == sum.result());
}

TEST(Checksum, is_nothing_for_other_text) {
  for (const char* text :
       {"", "99aa06d3014798d86001c324468d497", "99aa06d3014798d86001c324468d497f0", "99aa06d3014798d86001c324468d497g",
        "99AA06D3014798D86001C324468D497F", "-9aa06d3014798d86001c324468d497f"})
    EXPECT_FALSE(checksum_from(text)) << text;
}

}  // namespace
}  // namespace penstock::checksum_test
