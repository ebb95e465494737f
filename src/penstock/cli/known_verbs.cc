#include "penstock/cli/known_verbs.h"

#include <algorithm>
#include <vector>

#include "penstock/base/text.h"

namespace penstock {
namespace {

std::vector<const CLI::App*> verbs_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::string listed(const std::vector<const CLI::App*>& verbs) {
  std::string text;
  for (const CLI::App* verb : verbs) text += (text.empty() ? "" : ", ") + verb->get_name();
  return text;
}

const CLI::App& find_verb(const std::vector<const CLI::App*>& verbs, std::string_view argument,
                          std::string_view program) {
  std::vector<std::string> names;
  for (const CLI::App* verb : verbs) names.push_back(verb->get_name());
  const std::string& meant = nearest(argument, names);
  require<ConfigError>(meant == argument, "unknown verb '", argument, "': did you mean '", program, " ", meant,
                       "'? The verbs are ", listed(verbs));
  return **std::find_if(verbs.begin(), verbs.end(), [&](const CLI::App* verb) { return verb->get_name() == meant; });
}

}  // namespace

void require_known_verb(const CLI::App& app, const CommandLine& line) {
  const CLI::App* at = &app;
  std::string program = app.get_name();
  for (int i = 1;; ++i) {
    const auto verbs = verbs_of(*at);
    if (verbs.empty()) return;
    require<ConfigError>(i < line.count, "which verb? '", program, "' has ", listed(verbs), "; '", program,
                         " --help' describes them");
    const std::string_view argument = line.arguments[i];
    if (argument.starts_with('-')) return;
    at = &find_verb(verbs, argument, program);
    program += ' ';
    program += argument;
  }
}

}  // namespace penstock
