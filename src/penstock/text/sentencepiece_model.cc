#include "penstock/text/sentencepiece_model.h"

#include <sentencepiece_processor.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/text/unicode.h"

namespace penstock::text {
namespace {

void require_ok(const sentencepiece::util::Status& status, std::string_view what) {
  require<Failure>(status.ok(), "SentencePiece cannot ", what, ": ", printable(status.ToString()));
}

std::optional<std::int64_t> if_any(int id) { return id < 0 ? std::nullopt : std::optional<std::int64_t>(id); }

}  // namespace

struct SentencePieceModel::Processor : sentencepiece::SentencePieceProcessor {};

SentencePieceModel::SentencePieceModel(const std::string& path) : processor_(new Processor) {
  const std::string content = read_text(path);
  require<DataError>(!content.empty() && processor_->LoadFromSerializedProto(content).ok(), path,
                     " is not a SentencePiece model: copy the file again");
}

SentencePieceModel::~SentencePieceModel() = default;

void SentencePieceModel::encode(std::string_view text, std::vector<std::int64_t>& ids) const {
  std::vector<int> found;
  require_ok(processor_->Encode(text, &found), "encode a text");
  ids.insert(ids.end(), found.begin(), found.end());
}

std::string SentencePieceModel::decode(std::span<const std::int64_t> ids) const {
  std::string text;
  require_ok(processor_->Decode(std::vector<int>(ids.begin(), ids.end()), &text), "decode ids");
  return repaired(text);
}

std::int64_t SentencePieceModel::size() const { return processor_->GetPieceSize(); }

std::optional<std::int64_t> SentencePieceModel::id_of(std::string_view piece) const {
  // The id of <unk> stands for pieces that there are not.
  const int id = processor_->PieceToId(piece);
  return id >= 0 && processor_->IdToPiece(id) == piece ? std::optional<std::int64_t>(id) : std::nullopt;
}

std::string SentencePieceModel::piece(std::int64_t id) const { return processor_->IdToPiece(static_cast<int>(id)); }

bool SentencePieceModel::is_control(std::int64_t id) const { return processor_->IsControl(static_cast<int>(id)); }

std::optional<std::int64_t> SentencePieceModel::bos() const { return if_any(processor_->bos_id()); }

std::optional<std::int64_t> SentencePieceModel::eos() const { return if_any(processor_->eos_id()); }

}  // namespace penstock::text
