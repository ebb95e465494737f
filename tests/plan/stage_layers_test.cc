#include "penstock/plan/layer_costs.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::stage_layers_test {
namespace {

TEST(StageLayers, are_one_line) {
  const StageLayers stages{{"embedding", "block 0"}, {"block 1"}, {"norm", "head"}};
  EXPECT_EQ(write_stage_layers(stages), "embedding,block 0;block 1;norm,head");
  EXPECT_EQ(read_stage_layers("embedding,block 0;block 1;norm,head"), stages);
}

TEST(StageLayers, read_back) {
  EXPECT_TRUE(rc::check("read(write(x)) == x", [] {
    const auto names = rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::element('a', 'b', ' ', '.')));
    const auto layers = rc::gen::nonEmpty(rc::gen::container<std::vector<std::string>>(names));
    const StageLayers stages = *rc::gen::nonEmpty(rc::gen::container<StageLayers>(layers));
    RC_ASSERT(read_stage_layers(write_stage_layers(stages)) == stages);
  }));
}

TEST(StageLayers, errors_name_the_position) {
  const auto error_text = [](const StageLayers& stages) {
    return test::error_text<DataError>([&] { write_stage_layers(stages); });
  };
  EXPECT_EQ(error_text({}), "there are no stages to name the layers of");
  EXPECT_EQ(error_text({{"a"}, {}}), "stage 1 has no layers to name");
  EXPECT_EQ(error_text({{"a", "b;c"}}),
            "layer 1 of stage 0 is named 'b;c': a name is not empty and has no ',' or ';' in it");
  for (const char* text : {"", "a;", "a,,b", ";a", "a,;b"})
    EXPECT_TRUE(test::says(test::error_text<DataError>([&] { read_stage_layers(text); }), "has no name")) << text;
}

}  // namespace
}  // namespace penstock::stage_layers_test
