// The files of data sets: where they are, and how their bytes are read. Free of LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace penstock {

/// The bytes of the file at `path`. Throws DataError if it is missing, unreadable, not a regular file, or larger than
/// `max_bytes`; the size is checked before memory is allocated. Thread-safe.
std::vector<std::uint8_t> read_whole_file(const std::string& path, std::size_t max_bytes);

/// Returns the folder of data sets that contains `set` ("mnist", "cifar10", "text"): $PENSTOCK_DATA if it is set; else
/// the first folder `data` with a folder `set` in it, searched in the current folder and its parents, then in the
/// folder of the program and its parents; else "data", so that the loading function reports what is missing.
std::string find_data(const std::string& set);

// IDX, the file format of MNIST: a magic number, the sizes of the dimensions, then the bytes.
//
//   00 00 08 dd        two zeros, the type (08: unsigned byte, the only one read here), the number of dimensions
//   nn nn nn nn  x dd  each size, big-endian
//   payload            the product of the sizes, in bytes; nothing after it
//
// The reader is strict, because training on a damaged file would go unnoticed: any deviation is a DataError that names
// the file and the two numbers that disagree. A malicious file cannot use more memory than the limit.

/// The content of one IDX file of unsigned bytes, in row-major order.
struct IdxArray {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;
};

/// The largest accepted payload. The largest file of MNIST has 45 MiB.
struct IdxLimits {
  std::size_t max_bytes = std::size_t{256} << 20;
};

/// Parses `content`, which may be gzip-compressed (recognised by its first two bytes; several members are
/// concatenated). `name` is the name of the file in error messages. Allocates in proportion to the bytes that are
/// present, not to the sizes in the header. Throws DataError. Thread-safe.
IdxArray parse_idx(std::span<const std::uint8_t> content, const std::string& name, const IdxLimits& limits = {});

/// Reads the file at `path`. Throws DataError if it is missing, unreadable or not IDX. Thread-safe.
IdxArray read_idx(const std::string& path, const IdxLimits& limits = {});

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
