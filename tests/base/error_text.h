// Helpers for tests of error messages.
#pragma once

#include <string>

namespace penstock::test {

/// The message of the `Error` that `call` throws, or "[no error]". Other exceptions propagate, and fail the test.
template <class Error, class Call>
std::string error_text(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "[no error]";
}

/// True if `text` contains all of `parts`.
template <class... Parts>
bool says(const std::string& text, const Parts&... parts) {
  return ((text.find(parts) != std::string::npos) && ...);
}

}  // namespace penstock::test
