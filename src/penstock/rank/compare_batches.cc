#include "penstock/rank/compare_batches.h"

#include <algorithm>
#include <cstring>
#include <iomanip>
#include <map>
#include <sstream>

#include "penstock/world/collectives.h"

namespace penstock {
namespace {

constexpr std::uint64_t compared_at_first = 3;
constexpr std::size_t hashed_blocks = 64, block_bytes = 1024;
constexpr const char* unread = "-";

std::uint64_t mixed(std::uint64_t hash, std::uint64_t instruction) {
  hash = (hash ^ instruction) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

std::uint64_t hash_of(std::uint64_t hash, const char* bytes, std::size_t count) {
  std::uint64_t instruction = 0;
  for (; count >= sizeof(instruction); bytes += sizeof(instruction), count -= sizeof(instruction)) {
    std::memcpy(&instruction, bytes, sizeof(instruction));
    hash = mixed(hash, instruction);
  }
  instruction = 0;
  std::memcpy(&instruction, bytes, count);
  return mixed(hash, instruction);
}

/// The tensor in contiguous memory; of a large one that is not contiguous, only some of its rows.
torch::Tensor walkable(const torch::Tensor& tensor) {
  if (tensor.is_contiguous() && tensor.device().is_cpu()) return tensor;
  const std::int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
  constexpr std::int64_t taken = 8;
  if (rows <= taken) return tensor.contiguous().cpu();
  const torch::Tensor index = torch::arange(taken, torch::kInt64) * ((rows - 1) / (taken - 1));
  return tensor.index_select(0, index.to(tensor.device())).contiguous().cpu();
}

/// One line for all targets together, then one for each input.
std::vector<std::string> lines_of(const GivenBatch& given) {
  std::string targets;
  for (const torch::Tensor& target : given.targets) targets += (targets.empty() ? "" : ", ") + digest_of(target);
  std::vector<std::string> lines{targets.empty() ? "none" : targets};
  for (const auto& input : given.inputs) lines.push_back(input ? digest_of(*input) : unread);
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::vector<std::string> lines_in(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// The error text for all ranks' lines, by world rank; empty where no two lines differ that should be equal.
std::string difference(const RankContext& context, std::uint64_t training_step,
                       const std::vector<std::vector<std::string>>& all) {
  struct First {
    std::size_t rank;
    std::string digest;
  };
  std::map<std::pair<std::size_t, std::size_t>, First> known;  // by line, and replica for inputs
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    for (std::size_t line = 0; line < all[rank].size(); ++line) {
      const std::string& digest = all[rank][line];
      if (digest == unread) continue;
      const std::size_t replica = line == 0 ? 0 : rank % static_cast<std::size_t>(context.replicas);
      const auto [first, is_new] = known.try_emplace({line, replica}, First{rank, digest});
      if (is_new || first->second.digest == digest) continue;
      return say("ranks were given different batches in training step ", training_step + 1, ": the ",
                 line == 0 ? std::string("targets are ") : say("rows of input ", line - 1, " are "),
                 first->second.digest, " on rank ", first->second.rank, " and ", digest, " on rank ", rank,
                 ": every process passes the same batch, so seed what draws, shuffles or augments data alike on all ",
                 "of them (compare_batches = 0 turns this comparison off)");
    }
  return "";
}

}  // namespace

std::string digest_of(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  const torch::NoGradGuard no_grad;
  const torch::Tensor walked = walkable(tensor.detach());
  const auto* bytes = static_cast<const char*>(walked.const_data_ptr());
  const std::size_t size = walked.nbytes();
  std::uint64_t hash = size;
  if (size <= hashed_blocks * block_bytes) {
    hash = hash_of(hash, bytes, size);
  } else {
    for (std::size_t block = 0; block < hashed_blocks; ++block)
      hash = hash_of(hash, bytes + (size - block_bytes) / (hashed_blocks - 1) * block, block_bytes);
  }
  std::ostringstream text;
  text << c10::toString(tensor.scalar_type()) << " " << tensor.sizes() << " #" << std::hex << std::setfill('0')
       << std::setw(16) << hash;
  return text.str();
}

bool is_compared(std::uint64_t training_step, int every) {
  return every > 0 && (training_step < compared_at_first || training_step % static_cast<std::uint64_t>(every) == 0);
}

void compare_batches(const RankContext& context, const GivenBatch& given) {
  const auto decide = [&](const std::vector<Message>& messages) {
    std::vector<std::vector<std::string>> all;
    for (const Message& message : messages) all.push_back(lines_in(text_in(message)));
    return message_of(difference(context, given.training_step, all));
  };
  const std::string error_text = text_in(
      agree(context, control_tag(given.pipeline, Topic::batches, given.step), message_of(joined(lines_of(given))),
            decide, {.parts = "a hash of its batch", .decision = "the comparison of batches"}));
  if (!error_text.empty()) throw BatchesDiffer(error_text);
}

}  // namespace penstock
