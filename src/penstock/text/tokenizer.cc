#include "penstock/text/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/base/text.h"
#include "penstock/text/added_tokens.h"
#include "penstock/text/bpe.h"
#include "penstock/text/components.h"
#include "penstock/text/sentencepiece_model.h"
#include "penstock/text/unicode.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int64_t>;

/// Calls `read` with the document of a JSON file, if the file exists.
template <class Read>
void if_json(const fs::path& path, std::string_view what, Read&& read) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  read_file(path.string(), [&](const std::string& text) {
    const nlohmann::json document = parse_strictly(text, what);
    read(StrictValue(document, what));
    return true;
  });
}

/// A member that is a token: its text, or an object with it. None if it is absent or null.
std::optional<std::string> token_text(const StrictValue& config, const char* key) {
  if (!config.has_value(key)) return std::nullopt;
  return config[key].value().is_object() ? config[key]["content"].text() : config[key].text();
}

bool is_true(const StrictValue& config, const char* key, bool otherwise) {
  return config.has_value(key) ? config[key].boolean() : otherwise;
}

}  // namespace

struct Tokenizer::State {
  std::string place;  // for messages: the directory
  // One of the two.
  std::optional<text::Bpe> bpe;
  std::optional<text::SentencePieceModel> pieces;

  std::vector<text::AddedToken> added;
  std::unordered_map<std::int64_t, std::size_t> added_by_id;
  text::TokenFinder in_text, in_normalized;
  text::Normalizer normalizer;
  text::PreTokenizer pre_tokenizer;
  std::optional<text::Decoder> decoder;
  Ids prefix, suffix;  // of a text, with EncodeOptions::special_tokens
  std::optional<std::int64_t> bos, eos;
  Ids stop_ids;
  std::string chat_template;

  void read_json(const StrictValue& file);
  void read_post_processor(const StrictValue& component);
  void read_sentencepiece(const fs::path& model);
  void set_added(std::vector<text::AddedToken> tokens, const StrictValue& where);
  void read_tokenizer_config(const StrictValue& config);
  void read_generation_config(const StrictValue& config);

  std::int64_t largest_id() const {
    std::int64_t largest = bpe ? bpe->largest_id() : pieces->size() - 1;
    for (const text::AddedToken& token : added) largest = std::max(largest, token.id);
    return largest;
  }
  std::optional<std::int64_t> id_of(std::string_view token) const {
    for (const text::AddedToken& each : added)
      if (each.content == token) return each.id;
    return bpe ? bpe->id_of(token) : pieces->id_of(token);
  }
  const text::AddedToken* added_token(std::int64_t id) const {
    const auto found = added_by_id.find(id);
    return found == added_by_id.end() ? nullptr : &added[found->second];
  }
  std::string decode_pieces(std::span<const std::int64_t> ids, bool special_tokens) const;
};

void Tokenizer::State::read_json(const StrictValue& file) {
  file.require_members({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                        "post_processor", "decoder", "model"});
  if (file.has_value("normalizer")) normalizer = text::Normalizer(file["normalizer"]);
  if (file.has_value("pre_tokenizer")) pre_tokenizer = text::PreTokenizer(file["pre_tokenizer"]);
  if (file.has_value("decoder")) decoder.emplace(file["decoder"]);
  bpe.emplace(file["model"], pre_tokenizer.is_byte_level());
  if (file.has_value("added_tokens")) set_added(text::read_added_tokens(file["added_tokens"]), file["added_tokens"]);
  if (file.has_value("post_processor")) read_post_processor(file["post_processor"]);
}

void Tokenizer::State::set_added(std::vector<text::AddedToken> tokens, const StrictValue& where) {
  added = std::move(tokens);
  std::vector<text::AddedToken> raw, of_normalized;
  for (std::size_t i = 0; i < added.size(); ++i) {
    const text::AddedToken& token = added[i];
    const std::string content = printable(token.content);
    if (bpe) {
      const auto known = bpe->id_of(token.content);
      require<DataError>(!known || *known == token.id, where.place(), ": '", content, "' has the id ", token.id,
                         ", and ", known.value_or(0), " in the vocabulary");
      const std::string* other = bpe->token(token.id);
      require<DataError>(!other || *other == token.content, where.place(), ": '", content, "' has the id ", token.id,
                         " of '", printable(other ? *other : ""), "' in the vocabulary");
    }
    require<DataError>(added_by_id.emplace(token.id, i).second, where.place(), ": the id ", token.id, " of '", content,
                       "' belongs to another added token as well");
    if (!token.normalized || pieces) {
      raw.push_back(token);
    } else {
      of_normalized.push_back(token);
      of_normalized.back().content = normalizer(token.content);
    }
  }
  in_text = text::TokenFinder(std::move(raw));
  in_normalized = text::TokenFinder(std::move(of_normalized));
}

void Tokenizer::State::read_post_processor(const StrictValue& component) {
  const std::string type = component["type"].text();
  if (type == "ByteLevel") return;  // it changes offsets
  if (type == "Sequence") {
    for (const StrictValue& each : component["processors"].list()) read_post_processor(each);
    return;
  }
  require<DataError>(type == "TemplateProcessing", component.place(), " is a '", printable(type),
                     "': supported post-processors are TemplateProcessing, ByteLevel and Sequence");
  Ids before, after;
  bool is_after = false;
  for (const StrictValue& piece : component["single"].list()) {
    if (piece.has("Sequence")) {
      require<DataError>(!is_after && piece["Sequence"]["id"].text() == "A", piece.place(),
                         " is another text: a template of one text is needed");
      is_after = true;
      continue;
    }
    const std::string name = piece["SpecialToken"]["id"].text();
    const StrictValue ids = component["special_tokens"][name.c_str()]["ids"];
    constexpr std::int64_t largest = (std::int64_t{1} << 31) - 1;
    for (const StrictValue& id : ids.list()) (is_after ? after : before).push_back(id.whole(0, largest));
  }
  require<DataError>(is_after, component["single"].place(), " has no place for the text");
  prefix.insert(prefix.begin(), before.begin(), before.end());
  suffix.insert(suffix.end(), after.begin(), after.end());
}

void Tokenizer::State::read_sentencepiece(const fs::path& model) {
  pieces.emplace(model.string());
  bos = pieces->bos();
  eos = pieces->eos();
  if (bos) prefix = {*bos};
}

void Tokenizer::State::read_tokenizer_config(const StrictValue& config) {
  const auto special = [&](const char* key, std::optional<std::int64_t>& id) {
    const auto token = token_text(config, key);
    if (!token) return;
    id = id_of(*token);
    require<DataError>(id.has_value(), config[key].place(), " is '", printable(*token),
                       "', which is not in the vocabulary");
  };
  if (pieces && config.has("added_tokens_decoder")) {
    std::vector<text::AddedToken> tokens;
    for (const auto& [key, token] : config["added_tokens_decoder"].members()) {
      const bool is_number =
          !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
      require<DataError>(is_number, token.place(), " does not belong to an id");
      tokens.push_back({.id = std::stoll(key),
                        .content = token["content"].text(),
                        .special = is_true(token, "special", false),
                        .lstrip = is_true(token, "lstrip", false),
                        .rstrip = is_true(token, "rstrip", false),
                        .single_word = is_true(token, "single_word", false)});
    }
    set_added(std::move(tokens), config["added_tokens_decoder"]);
  }
  special("bos_token", bos);
  special("eos_token", eos);
  if (pieces) prefix = bos && is_true(config, "add_bos_token", true) ? Ids{*bos} : Ids{};
  if (pieces) suffix = eos && is_true(config, "add_eos_token", false) ? Ids{*eos} : Ids{};
  if (!config.has_value("chat_template")) return;
  if (config["chat_template"].value().is_string()) {
    chat_template = config["chat_template"].text();
    return;
  }
  for (const StrictValue& each : config["chat_template"].list())
    if (each["name"].text() == "default") chat_template = each["template"].text();
}

void Tokenizer::State::read_generation_config(const StrictValue& config) {
  if (!config.has_value("eos_token_id")) return;
  const StrictValue ends = config["eos_token_id"];
  const std::int64_t largest = largest_id();
  if (ends.value().is_array())
    for (const StrictValue& id : ends.list()) stop_ids.push_back(id.whole(0, largest));
  else
    stop_ids.push_back(ends.whole(0, largest));
}

std::string Tokenizer::State::decode_pieces(std::span<const std::int64_t> ids, bool special_tokens) const {
  std::string result;
  Ids run;
  const auto flush = [&] {
    if (!run.empty()) result += pieces->decode(run);
    run.clear();
  };
  for (const std::int64_t id : ids) {
    const text::AddedToken* token = added_token(id);
    const bool is_known = id >= 0 && id < pieces->size();
    const bool is_special = token ? token->special : is_known && pieces->is_control(id);
    if (is_special ? !special_tokens : !token && !is_known) continue;
    if (!token && !is_special) {
      run.push_back(id);
      continue;
    }
    flush();
    result += token ? token->content : pieces->piece(id);
  }
  flush();
  return result;
}

Tokenizer::Tokenizer() : state_(new State) {}

Tokenizer::~Tokenizer() = default;

std::shared_ptr<const Tokenizer> Tokenizer::from_json(std::string_view json) {
  const std::shared_ptr<Tokenizer> tokenizer(new Tokenizer);
  const nlohmann::json document = parse_strictly(json, "the tokenizer");
  tokenizer->state_->place = "the tokenizer";
  tokenizer->state_->read_json(StrictValue(document, "the tokenizer"));
  return tokenizer;
}

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::string& directory) {
  const fs::path folder = directory;
  std::error_code ignored;
  std::shared_ptr<Tokenizer> tokenizer(new Tokenizer);
  State& state = *tokenizer->state_;
  state.place = directory;
  if (fs::exists(folder / "tokenizer.json", ignored)) {
    if_json(folder / "tokenizer.json", "the tokenizer", [&](const StrictValue& file) { state.read_json(file); });
  } else {
    require<DataError>(fs::exists(folder / "tokenizer.model", ignored), directory,
                       ": there is neither a tokenizer.json nor a tokenizer.model: pass a Hugging Face directory");
    state.read_sentencepiece(folder / "tokenizer.model");
  }
  if_json(folder / "tokenizer_config.json", "the configuration",
          [&](const StrictValue& config) { state.read_tokenizer_config(config); });
  if_json(folder / "generation_config.json", "the configuration",
          [&](const StrictValue& config) { state.read_generation_config(config); });
  if (fs::exists(folder / "chat_template.jinja", ignored))
    state.chat_template = read_text((folder / "chat_template.jinja").string());
  if (state.eos && std::find(state.stop_ids.begin(), state.stop_ids.end(), *state.eos) == state.stop_ids.end())
    state.stop_ids.push_back(*state.eos);
  return tokenizer;
}

Ids Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::string valid;
  if (utf8_prefix(text) != text.size()) text = valid = text::repaired(text);
  const State& state = *state_;
  Ids ids;
  if (options.special_tokens) ids = state.prefix;
  const auto add = [&](std::int64_t id) { ids.push_back(id); };
  if (state.pieces) {
    state.in_text.split(
        text, [&](std::string_view piece, std::size_t) { state.pieces->encode(piece, ids); }, add);
  } else {
    text::Bpe::Encoder encoder(*state.bpe);
    const text::PieceSink encode_word = [&](std::string_view word, bool) { encoder.encode(word, ids); };
    const auto split_into_words = [&](std::string_view piece, std::size_t begin) {
      const std::string normal = state.normalizer(std::string(piece));
      state.in_normalized.split(
          normal,
          [&](std::string_view part, std::size_t part_begin) {
            state.pre_tokenizer.split(part, begin == 0 && part_begin == 0, encode_word);
          },
          add);
    };
    state.in_text.split(text, split_into_words, add);
  }
  if (options.special_tokens) ids.insert(ids.end(), state.suffix.begin(), state.suffix.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int64_t> ids, const DecodeOptions& options) const {
  const State& state = *state_;
  if (state.pieces) return state.decode_pieces(ids, options.special_tokens);
  std::vector<std::string> tokens;
  for (const std::int64_t id : ids) {
    const text::AddedToken* added = state.added_token(id);
    if (added && added->special && !options.special_tokens) continue;
    const std::string* token = added ? &added->content : state.bpe->token(id);
    if (token) tokens.push_back(*token);
  }
  if (state.decoder) return (*state.decoder)(std::move(tokens));
  std::string joined;
  for (const std::string& token : tokens) joined += (&token == tokens.data() ? "" : " ") + token;
  return joined;
}

std::int64_t Tokenizer::size() const { return state_->largest_id() + 1; }

void Tokenizer::require_fits(std::int64_t rows) const {
  require<DataError>(size() <= rows, state_->place, ": the tokenizer has ids up to ", size() - 1,
                     ", and the vocabulary of the model has ", rows, " entries: pass the tokenizer of this model");
}

std::optional<std::int64_t> Tokenizer::id_of(std::string_view token) const { return state_->id_of(token); }

std::optional<std::string> Tokenizer::token(std::int64_t id) const {
  if (const text::AddedToken* added = state_->added_token(id)) return added->content;
  if (state_->pieces)
    return id >= 0 && id < state_->pieces->size() ? std::optional(state_->pieces->piece(id)) : std::nullopt;
  const std::string* token = state_->bpe->token(id);
  return token ? std::optional(*token) : std::nullopt;
}

std::optional<std::int64_t> Tokenizer::bos() const { return state_->bos; }

std::optional<std::int64_t> Tokenizer::eos() const { return state_->eos; }

const std::vector<std::int64_t>& Tokenizer::stop_ids() const { return state_->stop_ids; }

const std::string& Tokenizer::chat_template() const { return state_->chat_template; }

}  // namespace penstock
