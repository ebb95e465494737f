// Reads IDX, the file format of MNIST: a magic number, the sizes of the dimensions, then the bytes. Free of LibTorch.
//
//   00 00 08 dd        two zeros, the type (08: unsigned byte, the only one read here), the number of dimensions
//   nn nn nn nn  x dd  each size, big-endian
//   payload            the product of the sizes, in bytes; nothing after it
//
// The reader is strict, because training on a damaged file would go unnoticed: any deviation is a DataError that names
// the file and the two numbers that disagree. A malicious file cannot use more memory than the limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace penstock {

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

}  // namespace penstock
