#include "penstock/text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/text/unicode.h"

namespace penstock::text {
namespace {

std::size_t without_space_at_end(std::string_view text) {
  while (!text.empty()) {
    const Character last = last_character(text);
    if (!is_white_space(last.code)) break;
    text.remove_suffix(last.bytes);
  }
  return text.size();
}

std::size_t space_at_begin(std::string_view text) {
  const std::size_t size = text.size();
  while (!text.empty()) {
    const Character first = first_character(text);
    if (!is_white_space(first.code)) break;
    text.remove_prefix(first.bytes);
  }
  return size - text.size();
}

bool stands_alone(std::string_view before, std::string_view after) {
  return (before.empty() || !is_word_character(last_character(before).code)) &&
         (after.empty() || !is_word_character(first_character(after).code));
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const StrictValue& list) {
  constexpr std::int64_t largest_id = (std::int64_t{1} << 31) - 1;
  std::vector<AddedToken> tokens;
  for (const StrictValue& each : list.list()) {
    each.require_members({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    tokens.push_back({.id = each["id"].whole(0, largest_id),
                      .content = each["content"].text(),
                      .special = each["special"].boolean(),
                      .lstrip = each["lstrip"].boolean(),
                      .rstrip = each["rstrip"].boolean(),
                      .single_word = each["single_word"].boolean(),
                      .normalized = each["normalized"].boolean()});
  }
  return tokens;
}

TokenFinder::TokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    if (const std::string& content = tokens_[i].content; !content.empty())
      by_first_byte_[static_cast<unsigned char>(content.front())].push_back(i);
  for (auto& indices : by_first_byte_)
    std::stable_sort(indices.begin(), indices.end(), [&](std::size_t a, std::size_t b) {
      return tokens_[a].content.size() > tokens_[b].content.size();
    });
}

const AddedToken* TokenFinder::longest_at(std::string_view text, std::size_t at) const {
  for (const std::size_t i : by_first_byte_[static_cast<unsigned char>(text[at])])
    if (text.substr(at).starts_with(tokens_[i].content)) return &tokens_[i];
  return nullptr;
}

void TokenFinder::split(std::string_view text, const std::function<void(std::string_view, std::size_t)>& on_text,
                        const std::function<void(std::int64_t)>& on_token) const {
  std::size_t done = 0;
  if (!tokens_.empty())
    for (std::size_t at = 0; at < text.size();) {
      const AddedToken* token = longest_at(text, at);
      if (!token) {
        ++at;
        continue;
      }
      std::size_t begin = at, end = at + token->content.size();
      at = end;
      if (token->single_word && !stands_alone(text.substr(0, begin), text.substr(end))) continue;
      if (token->lstrip) begin = std::max(without_space_at_end(text.substr(0, begin)), done);
      if (token->rstrip) end += space_at_begin(text.substr(end));
      if (done < begin) on_text(text.substr(done, begin - done), done);
      on_token(token->id);
      done = end;
    }
  if (done < text.size()) on_text(text.substr(done), done);
}

}  // namespace penstock::text
