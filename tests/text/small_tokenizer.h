// A tokenizer for tests: byte-level, with the letters a to e, a space, and a few merges.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/temporary_folder.h"

namespace penstock::test {

/// Ids: a 0, b 1, c 2, d 3, e 4, a space 5, ab 6, cd 7, abcd 8, "<|end|>" 9 (special), "<|x|>" 10.
inline nlohmann::json small_tokenizer() {
  return nlohmann::json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [
      {"id": 9, "content": "<|end|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
       "special": true},
      {"id": 10, "content": "<|x|>", "single_word": false, "lstrip": true, "rstrip": false, "normalized": true,
       "special": false}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}},
      {"SpecialToken": {"id": "<|end|>", "type_id": 0}}], "pair": [],
      "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [9], "tokens": ["<|end|>"]}}},
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
      "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
      "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "Ġ": 5, "ab": 6, "cd": 7, "abcd": 8, "<|end|>": 9},
      "merges": ["a b", ["c", "d"], ["ab", "cd"]]}})");
}

/// A directory of a tokenizer, which is removed at the end.
class TokenizerFolder {
 public:
  explicit TokenizerFolder(const nlohmann::json& tokenizer = small_tokenizer()) {
    write("tokenizer.json", tokenizer.dump());
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(std::filesystem::path(path()) / name, std::ios::binary) << text;
  }
  std::string path() const { return folder_.string(); }

 private:
  const TemporaryFolder folder_{"tokenizer"};
};

}  // namespace penstock::test
