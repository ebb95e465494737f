// Replays the corpus of a fuzzer, including inputs that it found, in every build.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

namespace penstock {

/// An input, as either of the types that parsers take.
struct FuzzInput {
  std::string_view bytes;

  operator std::string_view() const { return bytes; }  // NOLINT: implicitly
  operator std::span<const std::uint8_t>() const {     // NOLINT
    return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
  }
};

/// Calls `attempt` with every file of corpus/`name`. A failure of the test for one that throws. Returns their number.
template <class Try>
int replay(const std::string& name, Try&& attempt) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(TESTS_FOLDER "/fuzz/corpus") / name)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NO_THROW(attempt(FuzzInput{content})) << entry.path();
    ++files;
  }
  return files;
}

}  // namespace penstock
