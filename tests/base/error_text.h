// What an error says: so that tests can look at its words.
#pragma once

#include <exception>
#include <string>

namespace penstock::test {

/// The message of the `Error` that `call` throws; what happened instead, in brackets, where it throws none.
template <class Error, class Call>
std::string error_text(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("[another error: ") + error.what() + "]";
  }
  return "[no error]";
}

/// Whether `text` has all of `words` in it.
template <class... Words>
bool says(const std::string& text, const Words&... words) {
  return ((text.find(words) != std::string::npos) && ...);
}

}  // namespace penstock::test
