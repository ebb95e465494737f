// The function under test of the fuzzer of config files. The test that replays its corpus calls it too. It throws if a
// property does not hold. Refusing the input is correct.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/cli/command_line_check.h"
#include "penstock/cli/config_file.h"

namespace penstock {

/// A verb with a flag of every kind that a config file can set.
struct ConfiguredVerb {
  ConfiguredVerb() {
    CLI::App* verb = program.add_subcommand("run", "");
    verb->add_option("--steps", steps);
    verb->add_option("--rate", rate);
    verb->add_option("--name", name);
    verb->add_option("--json", json);
    verb->add_option("--widths", widths)->delimiter(',');
    verb->add_flag("--shuffle,!--no-shuffle", shuffle)->default_str("true");
    verb->add_option("--augment", augment)->expected(0, 1)->type_name("TEXT");
    cli::add_config_flags(*verb);
    cli::refuse_huge_numbers(program);
  }

  CLI::App program{"", "program"};
  std::int64_t steps = 0;
  double rate = 0;
  std::string name, augment, json;
  std::vector<std::int64_t> widths;
  bool shuffle = true;
};

inline void try_config(std::string_view text) {
  // Once for all inputs: building it takes several times as long as reading an input. CLI11 forgets what it has read
  // when it reads again.
  static ConfiguredVerb configured;
  std::string program = "program", verb = "run";
  char* arguments[] = {program.data(), verb.data()};
  cli::ConfiguredLine line(configured.program, {2, arguments});
  try {
    // A first byte of 's' stands for settings that are stored with a checkpoint.
    const bool is_stored = text.starts_with("s");
    line.read({"run.toml", std::string(text.substr(is_stored ? 1 : 0)), is_stored});
    const CommandLine whole = line.arguments();
    configured.program.parse(whole.count, whole.arguments);
  } catch (const ConfigError& error) {
    const std::string_view message = error.what();
    require<InternalError>(message.starts_with("run.toml:") && is_plain_text(message), "no line of text: ", message);
  } catch (const CLI::ParseError& error) {
    const std::string message = cli::complaint_about(configured.program, error);
    require<InternalError>(message.find('\n') == std::string::npos, "no line of text: ", message);
  }
}

}  // namespace penstock
