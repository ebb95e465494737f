// The program `penstock`: the verbs that need no LibTorch, and the way to those that do.
#include "penstock/cli/body_launcher.h"
#include "penstock/cli/exit_codes.h"
#include "penstock/cli/known_verbs.h"
#include "penstock/cli/rank_complaint.h"
#include "penstock/cli/verbs.h"

namespace penstock {
namespace {

void add_body_verb(CLI::App& program, const char* name) {
  const auto verb = std::find_if(std::begin(body_verbs), std::end(body_verbs),
                                 [&](const BodyVerb& one) { return std::string_view(one.name) == name; });
  program.add_subcommand(verb->name, verb->purpose);
}

int run(const CommandLine& line) {
  CLI::App program("Pipeline-parallel training: train, and see where the time goes.", "penstock");
  program.set_version_flag("--version", "penstock " PENSTOCK_VERSION);
  program.footer("'penstock VERB --help' tells more, with an example.");
  add_body_verb(program, "train");
  add_body_verb(program, "infer");
  add_body_verb(program, "bench");
  add_schedule_verb(program);
  add_simulate_verb(program);
  add_plan_verb(program);
  add_trace_verb(program);
  add_body_verb(program, "doctor");
  const auto find_verb = [&] {
    if (line.count > 1 && is_body_verb(line.words[1])) become_body(line);
    require_known_verb(program, line);
  };
  return run_program(program, line, find_verb, complain_as_rank);
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) { return penstock::run({argc, argv}); }
