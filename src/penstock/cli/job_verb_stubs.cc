// The program of the Python package (PENSTOCK_JOBS=OFF): verbs that it lacks, so that their names are explained.
#include "penstock/base/error.h"
#include "penstock/cli/verbs.h"

namespace penstock::cli {
namespace {

void add_missing_verb(CLI::App& program, const char* name) {
  CLI::App* verb = program.add_subcommand(name, "not in the Python package");
  verb->allow_extras();
  verb->callback([name] {
    throw ConfigError(say("the Python package has the planner only: for '", name, "' build Penstock from its sources"));
  });
}

}  // namespace

void add_checkpoint_verb(CLI::App& program) { add_missing_verb(program, "checkpoint"); }

void add_tokenize_verb(CLI::App& program) { add_missing_verb(program, "tokenize"); }

void add_launch_verb(CLI::App& program, const std::optional<std::vector<std::string>>& /*program_to_launch*/,
                     int& /*exit_code*/) {
  add_missing_verb(program, "launch");
}

}  // namespace penstock::cli
