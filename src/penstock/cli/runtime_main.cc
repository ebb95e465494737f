// The program `penstock-runtime`: the verbs that need LibTorch. `penstock` executes it (main.cc).

#include <c10/util/Exception.h>

#include "penstock/base/log.h"
#include "penstock/base/process.h"
#include "penstock/base/text.h"
#include "penstock/cli/checkpoint_flags.h"
#include "penstock/cli/config_file.h"
#include "penstock/cli/verbs.h"
#include "penstock/world/failures.h"

namespace penstock::cli {
namespace {

/// The file that --config names; none if it is not given. Throws DataError for a file that cannot be read or has more
/// than 1 MiB.
std::optional<ConfigText> given_config(const ConfiguredLine& line) {
  const auto file = line.value_of("--config");
  if (!file) return std::nullopt;
  return ConfigText{*file, read_text(*file, {.most_bytes = most_settings_bytes})};
}

/// The settings that are stored with the newest complete checkpoint of the folder that --resume names, on the line or
/// in a file that it has read; none without --resume. Throws DataError likewise.
std::optional<ConfigText> stored_config(const ConfiguredLine& line) {
  const auto folder = line.value_of("--resume");
  if (!folder || *folder == resume_if_possible) return std::nullopt;
  const auto stored = stored_settings(*folder);
  if (!stored) return std::nullopt;
  return ConfigText{.file = stored->path, .text = stored->text, .is_stored = true};
}

int run(const CommandLine& line) {
  set_log_level(LogLevel::info);
  CLI::App program("Pipeline-parallel training: train, and see where the time goes.", "penstock");
  // The last occurrence of a flag counts, so that scripts can append flags to a working command line.
  program.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  int exit_code = 0;
  add_train(program, exit_code);
  add_evaluate(program, exit_code);
  add_infer(program, exit_code);
  add_generate(program, exit_code);
  add_bench(program, exit_code);
  add_profile(program, exit_code);
  add_doctor(program, exit_code);
  ConfiguredLine configured(program, line);
  CommandLine arguments = line;
  const auto before = [&] {
    require_known_verb(program, line);
    // In order of precedence: what is read first stays.
    if (const auto config = given_config(configured)) configured.read(*config);
    if (const auto stored = stored_config(configured)) configured.read(*stored);
    arguments = configured.arguments();
  };
  const auto print_error_with_place = [&](ExitCode exit, const std::string& message) {
    return complain_as_rank(exit, configured.place_of(message) + message);
  };
  const int code = run_program(program, arguments, before, print_error_with_place);
  return code == 0 ? exit_code : code;
}

}  // namespace

void set_work(CLI::App& verb, int& exit_code, const std::function<int()>& work) {
  verb.callback([&verb, &exit_code, work] {
    if (verb.get_option_no_throw("--print-config") && print_config_instead(verb)) return;
    try {
      exit_code = work();
    } catch (const c10::Error& error) {
      throw Failure(reason_of(error));
    }
  });
}

}  // namespace penstock::cli

int main(int argc, char** argv) {
  penstock::exit_without_destroying_libraries();
  const int code = penstock::cli::run({argc, argv});
  // After a failure a rank may still run code that never returns, so its objects must not be destroyed.
  if (code == static_cast<int>(penstock::cli::ExitCode::failed)) penstock::exit_at_once(code);
  return code;
}
