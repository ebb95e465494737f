#include "penstock/cli/failed_attempt.h"

#include <csignal>
#include <filesystem>
#include <optional>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/cli/exit_codes.h"
#include "penstock/launch/keep_rank.h"

namespace penstock {
namespace {

constexpr std::size_t shown_lines = 20;

FailedAttempt report_rank(const EndedAttempt& attempt, int rank, const std::string& how) {
  const RankLogs files = attempt.logs.of_rank(rank);
  auto lines = last_lines(files.err, shown_lines);
  const std::filesystem::path& shown = lines.empty() ? files.out : files.err;
  if (lines.empty()) lines = last_lines(files.out, shown_lines);
  std::string text = say("rank ", rank, " of ", attempt.ranks, " failed first: ", how);
  text += lines.empty() ? say("; it wrote nothing (", shown.string(), ")") : say("; ", shown.string(), " ends with");
  for (const std::string& line : lines) text += "\n  | " + line;
  print_error(ExitCode::failed, text);
  return {1, say("rank ", rank, " of ", attempt.ranks, ": ", how)};
}

}  // namespace

FailedAttempt report_failure(const EndedAttempt& attempt) {
  const GroupEnd& end = attempt.launcher;
  // A rank whose supervisor was killed has no record in the journal and precedes ranks that received a signal as the
  // cause. (If the launcher dies, all supervisors die with it.)
  const auto first = first_failure(attempt.endings);
  const std::vector<int> vanished = end.signal == 0 ? attempt.logs.vanished(attempt.ranks) : std::vector<int>{};
  if (!vanished.empty() && (!first || first->was_signalled)) {
    FailedAttempt failed =
        report_rank(attempt, vanished.front(),
                    say("its supervisor (penstock ", keep_rank_verb, ") was killed, and the rank with it"));
    failed.exit_code = 128 + SIGKILL;
    return failed;
  }
  if (first) {
    FailedAttempt failed = report_rank(attempt, first->rank, first->text());
    failed.exit_code = exit_code_of(attempt.endings);
    return failed;
  }
  const std::string how =
      say("the launcher ended with ", Ending{.exit_code = end.exit_code, .signal = end.signal}.text());
  if (attempt.endings.empty())
    print_error(ExitCode::failed, say(how, ", and no ending is recorded in ", attempt.logs.journal().string(),
                                      ": the launcher's own messages are above"));
  else
    print_error(ExitCode::failed, say(how, ", but no rank failed by itself (", attempt.logs.journal().string(),
                                      "): the launcher's own messages are above"));
  return {end.status(), how};
}

}  // namespace penstock
