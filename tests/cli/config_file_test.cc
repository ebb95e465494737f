// Values of config files, and keys of earlier versions.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/base/error_text.h"
#include "tests/fuzz/config_input.h"

namespace penstock::config_file_test {
namespace {

/// The command line after `--config` of `text`.
std::vector<std::string> arguments_with(const std::string& text, bool is_stored = false) {
  ConfiguredVerb configured;
  std::string program = "program", verb = "run";
  char* arguments[] = {program.data(), verb.data()};
  cli::ConfiguredLine line(configured.program, {2, arguments});
  line.read({"run.toml", text, is_stored});
  const CommandLine whole = line.arguments();
  return {whole.arguments + 2, whole.arguments + whole.count};
}

TEST(ConfigFile, flags_of_earlier_versions_are_ignored_in_stored_settings_only) {
  const std::string text = "capture-steps = false\nkeep_last_step = true\nstatic-shapes = false\nsteps = 3\n";
  EXPECT_EQ(arguments_with(text, /*is_stored=*/true), std::vector<std::string>{"--steps=3"});
  EXPECT_EQ(test::error_text<ConfigError>([&] { arguments_with("steps = 3\nkeep-last-step = true\n"); }),
            "run.toml:2: --keep-last-step was removed: save checkpoints with --checkpoint DIR, and continue with "
            "--resume DIR");
  EXPECT_EQ(test::error_text<ConfigError>([&] { arguments_with("kept-steps = true\n", /*is_stored=*/true); }),
            "run.toml:1: unknown key 'kept-steps': did you mean 'steps'?");
}

TEST(ConfigFile, letters_and_percent_signs_are_values_as_written) {
  EXPECT_EQ(arguments_with("name = \"gr\u00f6\u00dfe 50%25 \\u00e9\" # 5 \u20ac\n"),
            std::vector<std::string>{"--name=gr\u00f6\u00dfe 50%25 \u00e9"});
  EXPECT_EQ(arguments_with("name = '\u00e4\\n'\n"), std::vector<std::string>{"--name=\u00e4\\n"});
  for (const char* wrong : {"name = \"\\\u00e4\"", "gr\u00f6\u00dfe = 1", "name = \u00e4", "name = \"\\u002541\""})
    EXPECT_THROW(arguments_with(wrong), ConfigError) << wrong;
}

}  // namespace
}  // namespace penstock::config_file_test
