// IDX, the file format of MNIST: a magic number, the sizes of the dimensions, then the bytes. Torch-free.
//
//   00 00 08 dd        two zeros, the type (08: unsigned byte, the only one read here), the number of dimensions
//   nn nn nn nn  x dd  each size, big-endian
//   payload            the product of the sizes, in bytes; nothing after it
//
// The reader is strict, because a file that is nearly right trains a model that is nearly right: anything else is a
// DataError that names the file and both numbers that disagree. A hostile file costs no more memory than its cap.
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

/// What a file may claim at most. MNIST's largest holds 45 MiB.
struct IdxLimits {
  std::size_t max_bytes = std::size_t{256} << 20;
};

/// Reads `content`, which may be gzip-compressed (told by its first two bytes; several members are read as one).
/// `name` is what errors call it. Memory grows with the bytes that really arrive, never with what a header claims.
/// Throws DataError. Thread-safe.
IdxArray parse_idx(std::span<const std::uint8_t> content, const std::string& name, const IdxLimits& limits = {});

/// Reads the file at `path`. Throws DataError when it is missing, unreadable or not IDX. Thread-safe.
IdxArray read_idx(const std::string& path, const IdxLimits& limits = {});

}  // namespace penstock
