#include "penstock/cli/known_verbs.h"

#include <algorithm>
#include <vector>

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

const CLI::App& find_verb(const std::vector<const CLI::App*>& verbs, std::string_view word, std::string_view program) {
  const auto distance = [&](const CLI::App* verb) { return edit_distance(word, verb->get_name()); };
  const CLI::App* nearest = *std::min_element(verbs.begin(), verbs.end(), [&](const CLI::App* a, const CLI::App* b) {
    return distance(a) < distance(b);
  });
  require<ConfigError>(nearest->get_name() == word, "unknown verb '", word, "': did you mean '", program, " ",
                       nearest->get_name(), "'? The verbs are ", listed(verbs));
  return *nearest;
}

}  // namespace

std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::vector<std::size_t>> cost(from.size() + 1, std::vector<std::size_t>(to.size() + 1));
  for (std::size_t i = 0; i <= from.size(); ++i)
    for (std::size_t j = 0; j <= to.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const bool differ = from[i - 1] != to[j - 1];
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (differ ? 1 : 0)});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  return cost[from.size()][to.size()];
}

void require_known_verb(const CLI::App& app, const CommandLine& line) {
  const CLI::App* at = &app;
  std::string program = app.get_name();
  for (int i = 1; ; ++i) {
    const auto verbs = verbs_of(*at);
    if (verbs.empty()) return;
    require<ConfigError>(i < line.count, "which verb? '", program, "' has ", listed(verbs), "; '", program,
                         " --help' tells what they do");
    const std::string_view word = line.words[i];
    if (word.starts_with('-')) return;
    at = &find_verb(verbs, word, program);
    program += ' ';
    program += word;
  }
}

}  // namespace penstock
