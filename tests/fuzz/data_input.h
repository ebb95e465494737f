// The functions under test of the fuzzers of data sets other than IDX. The tests that replay their corpus call them
// too. They throw if a property does not hold. Refusing the input is correct.
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

namespace penstock {

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
  try {
    const std::size_t count = count_cifar10_records(file, "batch");
    require<InternalError>(count > 0 && count * Cifar10Record::bytes == file.size(), count, " records in ", file.size(),
                           " bytes");
    for (std::size_t i = 0; i < count; ++i)
      require<InternalError>(file[i * Cifar10Record::bytes] < Cifar10Record::classes, "a label that was not refused");
  } catch (const DataError&) {
  }
}

/// A text, and the stored form of a vocabulary.
inline void try_vocabulary(std::string_view text) {
  const Vocabulary vocabulary = Vocabulary::of(text);
  require<InternalError>(vocabulary.decode(vocabulary.encode(text)) == text, "the text does not come back");
  require<InternalError>(Vocabulary::from_numbers(vocabulary.numbers()).bytes() == vocabulary.bytes(),
                         "the vocabulary does not read back");
  try {
    Vocabulary::of(text.substr(0, text.size() / 2)).encode(text);
  } catch (const DataError&) {  // a byte that the first half lacks
  }
  try {
    const Vocabulary stored = Vocabulary::from_numbers(text);
    require<InternalError>(stored.numbers() == text && stored.size() <= 256, "two texts for one vocabulary");
  } catch (const DataError&) {
  }
}

}  // namespace penstock
