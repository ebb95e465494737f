// Two kinds of error (docs/errors.md tells what each means and what to do about it):
//   Misuse   bad input or a bad plan: the caller can mend it. The command line answers with exit code 2.
//   Failure  something broke while running. The command line answers with exit code 1.
// A message is one line that names both values that disagree, and the fix. The library throws; it never
// prints and never exits.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace penstock {

/// Bad input: nothing has been changed, the caller can correct it and call again.
class Misuse : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A setting, flag or combination of them that cannot be.
class ConfigError : public Misuse {
 public:
  using Misuse::Misuse;
};

/// A schedule, a partition or an annotation that cannot work.
class ScheduleError : public Misuse {
 public:
  using Misuse::Misuse;
};

/// A file or data set that is missing, unreadable or not what it says.
class DataError : public Misuse {
 public:
  using Misuse::Misuse;
};

/// Something broke while running; the pipeline that threw it cannot go on.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A message could not be sent or did not arrive in time.
class TransportError : public Failure {
 public:
  using Failure::Failure;
};

/// A rank failed; the message names the rank, the stage, the instruction and the cause.
class RankFailure : public Failure {
 public:
  using Failure::Failure;
};

/// A program error in Penstock itself.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Builds a message from its parts: `say("m = ", m, ", but ...")`.
template <class... Parts>
std::string say(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

/// Throws `Error` with a message made of `parts` unless `condition` holds.
template <class Error, class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) throw Error(say(parts...));
}

}  // namespace penstock
