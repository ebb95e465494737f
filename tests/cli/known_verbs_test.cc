#include "penstock/cli/command_line_check.h"

#include <gtest/gtest.h>

#include <vector>

#include "penstock/base/error.h"

namespace penstock::known_verbs_test {
namespace {

/// The error for a line of a program with the verbs `train`, `trace report` and `trace svg`.
std::string error_text(std::vector<std::string> arguments) {
  CLI::App program("", "program");
  program.add_subcommand("train", "");
  CLI::App* trace = program.add_subcommand("trace", "");
  trace->add_subcommand("report", "");
  trace->add_subcommand("svg", "");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  try {
    require_known_verb(program, {static_cast<int>(pointers.size()), pointers.data()});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

TEST(KnownVerbs, accepts_known_verbs) {
  EXPECT_EQ(error_text({"program", "train", "anything"}), "none");
  EXPECT_EQ(error_text({"program", "trace", "svg", "file"}), "none");
  EXPECT_EQ(error_text({"program", "--help"}), "none");
  EXPECT_EQ(error_text({"program", "trace", "--help"}), "none");
}

TEST(KnownVerbs, suggests_the_nearest_verb) {
  EXPECT_EQ(error_text({"program", "trian"}),
            "unknown verb 'trian': did you mean 'program train'? The verbs are train, trace");
  EXPECT_EQ(error_text({"program", "trace", "reprot", "x"}),
            "unknown verb 'reprot': did you mean 'program trace report'? The verbs are report, svg");
}

TEST(KnownVerbs, lists_verbs_when_one_is_missing) {
  EXPECT_EQ(error_text({"program"}), "which verb? 'program' has train, trace; 'program --help' describes them");
  EXPECT_EQ(error_text({"program", "trace"}),
            "which verb? 'program trace' has report, svg; 'program trace --help' describes them");
}

}  // namespace
}  // namespace penstock::known_verbs_test
