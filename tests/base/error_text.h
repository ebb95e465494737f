// Helpers for tests of error messages.
#pragma once

#include <optional>
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

/// What `call` returns; nothing if it throws an `Error`. Other exceptions propagate.
template <class Error, class Call>
auto accepted(Call call) -> std::optional<decltype(call())> {
  try {
    return call();
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// True if `text` contains all of `parts`.
template <class... Parts>
bool says(const std::string& text, const Parts&... parts) {
  return ((text.find(parts) != std::string::npos) && ...);
}

}  // namespace penstock::test
