#include "penstock/hf/weights.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include <sys/mman.h>
#include <torch/types.h>
#include <unistd.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/checkpoint/safetensors.h"

namespace penstock::hf {
namespace {

/// A mapped part of a file; whole pages.
struct MappedBytes {
  std::byte* pages = nullptr;
  std::size_t length = 0;
};

MappedBytes map_bytes(const ReadFile& file, std::uint64_t begin, std::uint64_t length) {
  void* pages = ::mmap(nullptr, length, PROT_READ, MAP_PRIVATE, file.number(), static_cast<off_t>(begin));
  require<NotReadable>(pages != MAP_FAILED, "cannot map ", length, " bytes of '", file.path(),
                       "' into memory: ", error_text_of(errno));
  return {static_cast<std::byte*>(pages), length};
}

}  // namespace

MappedWeights::MappedWeights(const std::string& path, const Renaming& network_name) : files_(path, network_name) {
  for (const auto& [name, place] : files_.places()) {
    const std::string what = say("'", place.file->file.path(), "', tensor '", place.tensor.name, "'");
    if (torch::isFloatingType(scalar_type_of(place.tensor.type, what))) floating_types_.insert(place.tensor.type);
  }
}

torch::Tensor MappedWeights::read(const std::string& name) const {
  const auto found = files_.places().find(name);
  if (found == files_.places().end()) return {};
  const auto& [file, tensor] = found->second;
  const torch::ScalarType type = scalar_type_of(tensor.type, name);
  if (tensor.begin == tensor.end) return torch::empty(tensor.shape, type);
  const std::uint64_t page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = file->data_begin + tensor.begin, pages_begin = begin / page * page;
  const MappedBytes mapped = map_bytes(file->file, pages_begin, file->data_begin + tensor.end - pages_begin);
  const auto unmap = [mapped](void*) { ::munmap(mapped.pages, mapped.length); };
  const torch::Tensor bytes =
      torch::from_blob(mapped.pages + (begin - pages_begin), {static_cast<std::int64_t>(tensor.end - tensor.begin)},
                       unmap, torch::dtype(torch::kUInt8));
  // Other programs may write files in which numbers are not aligned.
  const bool is_aligned = begin % bytes_per_element(tensor.type) == 0;
  return (is_aligned ? bytes : bytes.clone()).view(type).view(tensor.shape);
}

std::vector<std::string> MappedWeights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : files_.places()) names.push_back(name);
  return names;
}

bool MappedWeights::may_be_unused(const std::string& name) const {
  constexpr std::array<std::string_view, 5> suffixes{".inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias",
                                                     ".attention.masked_bias"};
  const auto ends = [&](std::string_view suffix) { return name.ends_with(suffix); };
  return name == "lm_head.weight" || name == "embed_out.weight" || name.find(".rotary_emb.") != std::string::npos ||
         std::any_of(suffixes.begin(), suffixes.end(), ends);
}

}  // namespace penstock::hf
