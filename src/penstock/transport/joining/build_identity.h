// Names the build of Penstock that a process runs. Processes of one world must run the same one, because they send each
// other the bytes of their structs (wire.h, records.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

/// 12 hexadecimal digits that differ, in all likelihood, between different sources of this library.
std::string_view source_digest();

/// "penstock 0.2.0 (1f2e3d4c5b6a) with LibTorch 2.13.0": the version, the digest, and LibTorch's version.
std::string build_identity();

/// A number that differs, in all likelihood, between builds with different identities.
std::uint64_t build_number();

}  // namespace penstock
