// The exceptions of the library. There are two kinds (docs/errors.md lists every class with its causes and remedies):
//   Misuse   bad input or a bad plan: the caller can correct it. The program ends with exit code 2.
//   Failure  an error at run time. The program ends with exit code 1.
// A message is one line. It names the two values that disagree, and the fix. The library throws; it never prints and
// never exits.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace penstock {

/// Bad input. Nothing has been changed: the caller can correct the input and call again.
class Misuse : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An invalid setting or flag, or an invalid combination of them.
class ConfigError : public Misuse {
 public:
  using Misuse::Misuse;
};

/// An invalid schedule, partition or stage annotation.
class ScheduleError : public Misuse {
 public:
  using Misuse::Misuse;
};

/// A file or data set that is missing, unreadable or malformed.
class DataError : public Misuse {
 public:
  using Misuse::Misuse;
};

/// An error at run time. The pipeline that threw it cannot be used any more.
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

/// A bug in Penstock itself.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Concatenates `parts`, each written with operator<<: `say("m = ", m, ", but ...")`.
template <class... Parts>
std::string say(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

/// Throws `Error` with the message say(parts...) unless `condition` holds.
template <class Error, class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) throw Error(say(parts...));
}

}  // namespace penstock
