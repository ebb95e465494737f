// The functions under test of the fuzzers of data sets. The tests that replay their corpora call them too. They throw
// if a property does not hold. Refusing the input is correct.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/data/data_files.h"
#include "penstock/data/vocabulary.h"
#include "tests/base/error_text.h"

namespace penstock {

inline void try_idx(std::span<const std::uint8_t> input) {
  const IdxLimits limits{.max_bytes = 1 << 20};
  const auto array = test::accepted<DataError>([&] { return parse_idx(input, "input", limits); });
  if (!array) return;
  std::size_t total = 1;
  for (const std::int64_t size : array->shape) total *= static_cast<std::size_t>(size);
  require<InternalError>(array->bytes.size() == total && total <= limits.max_bytes, "the shape says ", total,
                         " bytes, and there are ", array->bytes.size());
}

/// An input would need 3073 bytes for each record, nearly all of them pixels. So a byte here is a label, and the pixels
/// are left out but for those after the last label, as many as its value says. Of four records each place is one: the
/// first, the last, and two between.
inline void try_cifar10(std::span<const std::uint8_t> labels) {
  constexpr std::size_t most_records = 4;
  std::vector<std::uint8_t> file;
  file.reserve(most_records * Cifar10Record::bytes);
  for (const std::uint8_t label : labels.first(std::min(labels.size(), most_records))) {
    file.push_back(label);
    file.resize(file.size() + Cifar10Record::pixels - (label >= 0xf0 ? label - 0xefU : 0));
  }
  const auto count = test::accepted<DataError>([&] { return count_cifar10_records(file, "batch"); });
  if (!count) return;
  require<InternalError>(*count > 0 && *count * Cifar10Record::bytes == file.size(), *count, " records in ",
                         file.size(), " bytes");
  for (std::size_t i = 0; i < *count; ++i)
    require<InternalError>(file[i * Cifar10Record::bytes] < Cifar10Record::classes, "a label that was not refused");
}

/// A text, and the stored form of a vocabulary.
inline void try_vocabulary(std::string_view text) {
  const Vocabulary vocabulary = Vocabulary::of(text);
  require<InternalError>(vocabulary.decode(vocabulary.encode(text)) == text, "the text does not come back");
  require<InternalError>(Vocabulary::from_numbers(vocabulary.numbers()).bytes() == vocabulary.bytes(),
                         "the vocabulary does not read back");
  // Refused: a byte that the first half lacks.
  test::accepted<DataError>([&] { return Vocabulary::of(text.substr(0, text.size() / 2)).encode(text); });
  if (const auto stored = test::accepted<DataError>([&] { return Vocabulary::from_numbers(text); }))
    require<InternalError>(stored->numbers() == text && stored->size() <= 256, "two texts for one vocabulary");
}

}  // namespace penstock
