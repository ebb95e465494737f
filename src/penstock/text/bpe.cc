#include "penstock/text/bpe.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <mutex>
#include <queue>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/hash.h"
#include "penstock/base/text.h"
#include "penstock/text/unicode.h"

namespace penstock::text {
namespace {

constexpr std::int64_t most_ids = std::int64_t{1} << 31;
constexpr std::string_view metaspace = "\xe2\x96\x81";  // U+2581, a space in vocabularies of SentencePiece

std::uint64_t pair_key(std::uint32_t left, std::uint32_t right) { return std::uint64_t{left} << 32 | right; }

/// Requires that the member is absent, null, 0 or empty.
void require_unused(const StrictValue& model, const char* key) {
  if (!model.has(key)) return;
  const nlohmann::json& value = model[key].value();
  const bool is_unused = value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty()) ||
                         (value.is_number() && value.get<double>() == 0);
  require<DataError>(is_unused, model[key].place(), " is set, which is not supported");
}

/// The number of bytes of the marks with which `word` begins.
std::size_t end_of_marks(std::string_view word, std::string_view mark) {
  std::size_t end = 0;
  while (word.substr(end).starts_with(mark)) end += mark.size();
  return end;
}

std::string byte_token(unsigned char byte) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "<0x%02X>", byte);
  return text.data();
}

}  // namespace

/// Remembers words that were encoded, one for each remainder of their hashes.
struct Bpe::Cache {
  static constexpr std::size_t slots = std::size_t{1} << 15;
  static constexpr std::size_t longest_word = 64;
  struct Slot {
    std::string word;
    std::vector<std::int64_t> ids;
  };
  std::mutex mutex;  // held by an Encoder; another one does without
  std::vector<Slot> words;
};

Bpe::~Bpe() = default;

Bpe::Bpe(const StrictValue& model, bool is_byte_level) : is_byte_level_(is_byte_level), cache_(new Cache) {
  if (model.has("type"))
    require<DataError>(model["type"].text() == "BPE", model["type"].place(), " is '", printable(model["type"].text()),
                       "': only BPE is supported");
  model.require_members({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                         "byte_fallback", "ignore_merges", "vocab", "merges"});
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) require_unused(model, key);
  falls_back_to_bytes_ = model.has_value("byte_fallback") && model["byte_fallback"].boolean();
  fuses_unknown_ = model.has_value("fuse_unk") && model["fuse_unk"].boolean();
  require<DataError>(!falls_back_to_bytes_ || !is_byte_level_, model.place(),
                     " has byte_fallback and ByteLevel words, which is not supported");
  ignores_merges_ = model.has_value("ignore_merges") && model["ignore_merges"].boolean();
  read_vocabulary(model["vocab"]);
  if (model.has_value("unk_token")) {
    const auto found = ids_.find(model["unk_token"].text());
    require<DataError>(found != ids_.end(), model["unk_token"].place(), " is '", printable(model["unk_token"].text()),
                       "', which is not in the vocabulary");
    unknown_ = found->second;
  }
  read_merges(model["merges"]);
  if (is_byte_level_)
    use_bytes();
  else
    words_ = ids_;
}

void Bpe::read_vocabulary(const StrictValue& vocabulary) {
  require<DataError>(vocabulary.value().is_object(), vocabulary.place(), " is not an object");
  ids_.reserve(vocabulary.value().size());
  for (const auto& [token, id] : vocabulary.value().items()) {
    const bool fits = id.is_number_unsigned() && id.get<std::uint64_t>() < std::uint64_t{most_ids};
    require<DataError>(fits, vocabulary.place(), ": the id of '", printable(token), "' is ", id.dump(),
                       ": a whole number from 0 is needed");
    const auto entry = ids_.emplace(token, id.get<Id>()).first;
    const auto [other, is_new] = tokens_.emplace(entry->second, &entry->first);
    require<DataError>(is_new, vocabulary.place(), ": the id ", entry->second, " belongs to two tokens, '",
                       printable(*other->second), "' and '", printable(token), "'");
    largest_id_ = std::max<std::int64_t>(largest_id_, entry->second);
  }
}

void Bpe::read_merges(const StrictValue& merges) {
  require<DataError>(merges.value().is_array(), merges.place(), " is not a list");
  merges_.reserve(merges.value().size());
  bool can_cut = !is_byte_level_ && !ignores_merges_ && ids_.contains(metaspace);
  std::uint32_t rank = 0;
  for (const nlohmann::json& merge : merges.value()) {
    std::array<std::string, 2> halves;
    if (merge.is_string()) {
      const std::string& both = merge.get_ref<const std::string&>();
      const std::size_t space = both.find(' ');
      require<DataError>(space != std::string::npos && both.find(' ', space + 1) == std::string::npos, merges.place(),
                         "[", rank, "] is not two tokens with a space between them");
      halves = {both.substr(0, space), both.substr(space + 1)};
    } else {
      require<DataError>(merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string(),
                         merges.place(), "[", rank, "] is not a pair of tokens");
      halves = {merge[0].get<std::string>(), merge[1].get<std::string>()};
    }
    const std::string whole = halves[0] + halves[1];
    std::array<Id, 3> ids{};
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string& token = i < 2 ? halves[i] : whole;
      const auto found = ids_.find(token);
      require<DataError>(found != ids_.end(), merges.place(), "[", rank, "] uses '", printable(token),
                         "', which is not in the vocabulary");
      ids[i] = found->second;
    }
    merges_[pair_key(ids[0], ids[1])] = {rank++, ids[2]};
    can_cut = can_cut && whole.find(metaspace, end_of_marks(whole, metaspace)) == std::string::npos;
  }
  if (can_cut) cut_before_ = metaspace;
}

void Bpe::use_bytes() {
  words_.reserve(ids_.size());
  for (const auto& [token, id] : ids_)
    if (const auto bytes = bytes_of(token)) words_.emplace(*bytes, id);
}

std::optional<std::int64_t> Bpe::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional<std::int64_t>(found->second);
}

const std::string* Bpe::token(std::int64_t id) const {
  const auto found = id >= 0 && id < most_ids ? tokens_.find(static_cast<Id>(id)) : tokens_.end();
  return found == tokens_.end() ? nullptr : found->second;
}

const Bpe::Merge* Bpe::merge_of(Id left, Id right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

/// The tokens of the word's single bytes or characters.
std::vector<Bpe::Id> Bpe::symbols_of(std::string_view word) const {
  std::vector<Id> symbols;
  bool waits = false;  // an unknown token, with which the next one may be fused
  const auto flush = [&] {
    if (waits) symbols.push_back(unknown_.value());
    waits = false;
  };
  while (!word.empty()) {
    const std::string_view symbol = word.substr(0, is_byte_level_ ? 1 : first_character(word).bytes);
    word.remove_prefix(symbol.size());
    if (const auto found = words_.find(symbol); found != words_.end()) {
      flush();
      symbols.push_back(found->second);
      continue;
    }
    if (falls_back_to_bytes_) {
      std::vector<Id> bytes;
      for (const char c : symbol)
        if (const auto found = ids_.find(byte_token(static_cast<unsigned char>(c))); found != ids_.end())
          bytes.push_back(found->second);
      if (bytes.size() == symbol.size()) {
        // Before an unknown token that waits: so does the package `tokenizers`.
        symbols.insert(symbols.end(), bytes.begin(), bytes.end());
        continue;
      }
    }
    if (!fuses_unknown_) flush();
    waits = unknown_.has_value();  // a symbol is left out if there is no such token
  }
  flush();
  return symbols;
}

void Bpe::append_tokens(std::string_view word, std::vector<std::int64_t>& ids) const {
  if (ignores_merges_)
    if (const auto whole = words_.find(word); whole != words_.end()) return ids.push_back(whole->second);

  struct Symbol {
    Id id;
    std::ptrdiff_t previous, next;  // -1: none
    bool is_merged = false;         // into the previous one
  };
  struct Candidate {
    std::uint32_t rank;
    std::ptrdiff_t at;
    Id result;
    bool operator<(const Candidate& other) const {  // the greatest is merged first
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  std::vector<Symbol> symbols;
  for (const Id id : symbols_of(word)) {
    const auto at = static_cast<std::ptrdiff_t>(symbols.size());
    symbols.push_back({id, at - 1, at + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;
  const auto symbol = [&](std::ptrdiff_t at) -> Symbol& { return symbols[static_cast<std::size_t>(at)]; };

  std::vector<Candidate> storage;
  storage.reserve(symbols.size());
  std::priority_queue<Candidate> queue({}, std::move(storage));
  const auto consider = [&](std::ptrdiff_t at) {
    if (at < 0 || symbol(at).next < 0) return;
    if (const Merge* merge = merge_of(symbol(at).id, symbol(symbol(at).next).id))
      queue.push({merge->rank, at, merge->result});
  };
  for (std::ptrdiff_t at = 0; at < static_cast<std::ptrdiff_t>(symbols.size()); ++at) consider(at);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbol(best.at);
    if (left.is_merged || left.next < 0) continue;
    Symbol& right = symbol(left.next);
    const Merge* merge = merge_of(left.id, right.id);
    if (!merge || merge->result != best.result) continue;  // one of the two has changed since
    left.id = best.result;
    right.is_merged = true;
    left.next = right.next;
    if (left.next >= 0) symbol(left.next).previous = best.at;
    consider(left.previous);
    consider(best.at);
  }
  for (std::ptrdiff_t at = 0; at >= 0; at = symbol(at).next) ids.push_back(symbol(at).id);
}

Bpe::Encoder::Encoder(const Bpe& model) : model_(model), has_cache_(model.cache_->mutex.try_lock()) {
  if (has_cache_) model_.cache_->words.resize(Cache::slots);
}

Bpe::Encoder::~Encoder() {
  if (has_cache_) model_.cache_->mutex.unlock();
}

void Bpe::Encoder::encode(std::string_view word, std::vector<std::int64_t>& ids) {
  const std::string_view mark = model_.cut_before_;
  while (!mark.empty()) {
    // The next mark after a character that is not one.
    const std::size_t end = word.find(mark, end_of_marks(word, mark));
    if (end == std::string_view::npos) break;
    encode_cached(word.substr(0, end), ids);
    word.remove_prefix(end);
  }
  encode_cached(word, ids);
}

void Bpe::Encoder::encode_cached(std::string_view word, std::vector<std::int64_t>& ids) {
  if (!has_cache_ || word.size() > Cache::longest_word) return model_.append_tokens(word, ids);
  Cache::Slot& slot = model_.cache_->words[text_hash(word) % Cache::slots];
  if (slot.word != word) {
    slot.word.clear();  // if what follows throws, the slot is empty
    slot.ids.clear();
    model_.append_tokens(word, slot.ids);
    slot.word = word;
  }
  ids.insert(ids.end(), slot.ids.begin(), slot.ids.end());
}

}  // namespace penstock::text
