// The records of CIFAR-10's binary version. Free of LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace penstock {

/// A record is a label byte, then the pixels: a plane of red, one of green, one of blue, row by row.
struct Cifar10Record {
  static constexpr std::size_t side = 32;
  static constexpr std::size_t pixels = 3 * side * side;
  static constexpr std::size_t bytes = 1 + pixels;
  static constexpr int classes = 10;
};

/// The number of records in `file`. Throws DataError, which names the file `name`, if it is empty, is not made of whole
/// records, or has a label of another class.
std::size_t count_cifar10_records(std::span<const std::uint8_t> file, const std::string& name);

}  // namespace penstock
