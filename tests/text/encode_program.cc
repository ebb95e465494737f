// Encodes and decodes the texts of a file, for comparison with Python packages.
//   encode_program DIRECTORY TEXTS RESULTS
// DIRECTORY has the tokenizer. TEXTS holds records: 4 bytes of length (little-endian), then a text. RESULTS holds four
// records for each: its ids as 4 bytes each, with and without special tokens, then the text of the former without and
// with special tokens. Prints the rate of encoding in MB/s.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/text/tokenizer.h"

namespace {

void write(std::ostream& out, const void* data, std::size_t size) {
  const auto length = static_cast<std::uint32_t>(size);
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
}

void write_ids(std::ostream& out, const std::vector<std::int64_t>& ids) {
  const std::vector<std::uint32_t> narrow(ids.begin(), ids.end());
  write(out, narrow.data(), narrow.size() * sizeof(std::uint32_t));
}

std::vector<std::string_view> records_of(std::string_view content) {
  std::vector<std::string_view> records;
  while (!content.empty()) {
    std::uint32_t length = 0;
    std::memcpy(&length, content.data(), sizeof length);
    records.push_back(content.substr(sizeof length, length));
    content.remove_prefix(sizeof length + length);
  }
  return records;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) return std::cerr << "usage: encode_program DIRECTORY TEXTS RESULTS\n", 2;
  const auto tokenizer = penstock::Tokenizer::load(arguments[1]);
  std::ifstream file(arguments[2], std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  const std::vector<std::string_view> texts = records_of(content);

  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  std::vector<std::vector<std::int64_t>> encoded;
  for (const std::string_view text : texts) encoded.push_back(tokenizer->encode(text));
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();

  std::ofstream out(arguments[3], std::ios::binary);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    write_ids(out, encoded[i]);
    write_ids(out, tokenizer->encode(texts[i], {.special_tokens = false}));
    for (const bool special_tokens : {false, true}) {
      const std::string text = tokenizer->decode(encoded[i], {.special_tokens = special_tokens});
      write(out, text.data(), text.size());
    }
  }
  std::cout << tokenizer->size() << ' ' << static_cast<double>(content.size()) / seconds / 1e6 << '\n';
  return out.flush() ? 0 : 1;
}
