#include "penstock/data/data_files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include <zlib.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {

std::vector<std::uint8_t> read_whole_file(const std::string& path, std::size_t max_bytes) {
  std::error_code code;
  const bool regular = std::filesystem::is_regular_file(path, code);
  require<DataError>(!code, "cannot open '", path, "': ", code.message());
  require<DataError>(regular, "cannot open '", path, "': it is not a regular file");
  const auto size = std::filesystem::file_size(path, code);
  require<DataError>(!code, "cannot open '", path, "': ", code.message());
  require<DataError>(size <= max_bytes, "'", path, "' has ", size, " bytes: more than the ", max_bytes,
                     " that are accepted");

  std::ifstream file(path, std::ios::binary);
  require<DataError>(file.good(), "cannot open '", path, "': ", std::strerror(errno));
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(size));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  require<DataError>(static_cast<std::size_t>(file.gcount()) == bytes.size(), "cannot read '", path, "': got ",
                     file.gcount(), " of its ", bytes.size(), " bytes");
  return bytes;
}
namespace {

/// Appends `folder` and its parents up to the root.
void add_with_parents(const std::filesystem::path& folder, std::vector<std::filesystem::path>& to) {
  for (std::filesystem::path at = folder; !at.empty(); at = at.parent_path()) {
    to.push_back(at);
    if (at == at.parent_path()) break;
  }
}

constexpr std::uint8_t kUnsignedByte = 0x08;
/// The largest expansion factor of deflate, which bounds the content of a gzip file by its size.
constexpr std::size_t kMaxExpansion = 1032;
/// Initial allocation for the payload, or as many times the file's size if that is more: images expand less. It doubles
/// while bytes arrive.
constexpr std::size_t kFirstPiece = std::size_t{1} << 20, kUsualExpansion = 8;

bool is_gzip(std::span<const std::uint8_t> bytes) { return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b; }

/// Reads the bytes of a file sequentially and decompresses them if necessary.
class IdxContent {
 public:
  IdxContent(std::span<const std::uint8_t> raw, const std::string& name)
      : rest_(raw), name_(name), gzip_(is_gzip(raw)) {
    if (!gzip_) return;
    // 16: expect a gzip header and check its trailer.
    require<DataError>(inflateInit2(&stream_, 15 + 16) == Z_OK, "cannot decompress '", name_, "': zlib did not start");
  }
  ~IdxContent() {
    if (gzip_) inflateEnd(&stream_);
  }
  IdxContent(const IdxContent&) = delete;
  IdxContent& operator=(const IdxContent&) = delete;

  /// Fills `out` as far as there are bytes; returns their number.
  std::size_t read(std::span<std::uint8_t> out) {
    if (gzip_) return inflate_into(out);
    const std::size_t count = std::min(out.size(), rest_.size());
    std::copy_n(rest_.begin(), count, out.begin());
    rest_ = rest_.subspan(count);
    return count;
  }

  /// An upper bound of the decompressed size of `raw`.
  static std::size_t bound(std::span<const std::uint8_t> raw) {
    return is_gzip(raw) ? raw.size() * kMaxExpansion : raw.size();
  }

 private:
  std::size_t inflate_into(std::span<std::uint8_t> out) {
    std::size_t done = 0;
    while (done < out.size() && !finished_) {
      const std::size_t offered = std::min(rest_.size(), std::size_t{1} << 30);
      const std::size_t wanted = std::min(out.size() - done, std::size_t{1} << 30);
      stream_.next_in = const_cast<Bytef*>(rest_.data());  // zlib does not write to it
      stream_.avail_in = static_cast<uInt>(offered);
      stream_.next_out = out.data() + done;
      stream_.avail_out = static_cast<uInt>(wanted);
      const int code = inflate(&stream_, Z_NO_FLUSH);
      rest_ = rest_.subspan(offered - stream_.avail_in);
      done += wanted - stream_.avail_out;
      if (code == Z_STREAM_END) {
        begin_next_member();
      } else {
        require<DataError>(code != Z_BUF_ERROR, "'", name_, "' breaks off in the middle of its gzip stream, after ",
                           stream_.total_out, " bytes of content: the copy is incomplete, fetch it again");
        require<DataError>(code == Z_OK, "'", name_, "' is damaged: gzip says '",
                           stream_.msg ? stream_.msg : zError(code), "' after ", stream_.total_out,
                           " bytes of content; fetch it again");
      }
    }
    return done;
  }

  void begin_next_member() {
    finished_ = rest_.empty();
    if (finished_) return;
    require<DataError>(is_gzip(rest_), "'", name_, "' has ", rest_.size(),
                       " bytes after its gzip stream: there must be none");
    inflateReset(&stream_);
  }

  std::span<const std::uint8_t> rest_;
  const std::string& name_;
  bool gzip_;
  bool finished_ = false;
  z_stream stream_{};
};

/// The sizes of the dimensions.
std::vector<std::int64_t> read_shape(IdxContent& content, const std::string& name) {
  std::array<std::uint8_t, 4> word{};
  std::size_t got = content.read(word);
  require<DataError>(got == word.size(), "'", name, "' is not an IDX file: it ends after ", got,
                     " of the 4 bytes of its magic");
  require<DataError>(word[0] == 0 && word[1] == 0, "'", name, "' is not an IDX file: its first bytes are ",
                     int{word[0]}, " ", int{word[1]}, ", not 0 0");
  require<DataError>(word[2] == kUnsignedByte, "'", name, "' holds IDX type ", int{word[2]}, ": only type ",
                     int{kUnsignedByte}, " (unsigned byte) is read");
  const int rank = word[3];
  require<DataError>(rank > 0, "'", name, "' is an IDX file of 0 dimensions: at least 1 is needed");
  std::vector<std::int64_t> shape;
  for (int d = 0; d < rank; ++d) {
    got = content.read(word);
    require<DataError>(got == word.size(), "'", name, "' breaks off in its header: it promises ", rank,
                       " dimensions and has ", d);
    shape.push_back(std::int64_t{word[0]} << 24 | std::int64_t{word[1]} << 16 | std::int64_t{word[2]} << 8 | word[3]);
  }
  return shape;
}

/// The product of `shape`. Throws above the limit, which also prevents overflow.
std::size_t count_bytes(const std::vector<std::int64_t>& shape, const std::string& name, std::size_t cap) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::size_t total = 1;
  for (std::int64_t size : shape) {
    const auto factor = static_cast<std::size_t>(size);
    require<DataError>(factor <= cap / total, "'", name, "' claims ", listed(shape, " x "), " bytes: more than the ",
                       cap, " that are accepted");
    total *= factor;
  }
  return total;
}

}  // namespace

std::string find_data(const std::string& set) {
  if (const char* chosen = std::getenv("PENSTOCK_DATA"); chosen && *chosen != '\0') return chosen;
  std::vector<std::filesystem::path> above;
  std::error_code code;  // ignored: an unreadable folder counts as absent
  if (const auto here = std::filesystem::current_path(code); !code) add_with_parents(here, above);
  if (const auto program = std::filesystem::read_symlink("/proc/self/exe", code); !code)
    add_with_parents(program.parent_path(), above);
  for (const std::filesystem::path& folder : above)
    if (std::filesystem::is_directory(folder / "data" / set, code)) return (folder / "data").string();
  return "data";
}

IdxArray parse_idx(std::span<const std::uint8_t> raw, const std::string& name, const IdxLimits& limits) {
  IdxContent content(raw, name);
  IdxArray array;
  array.shape = read_shape(content, name);
  const std::size_t total = count_bytes(array.shape, name, limits.max_bytes);
  require<DataError>(total <= IdxContent::bound(raw), "'", name, "' promises ", listed(array.shape, " x "), " = ",
                     total, " bytes, but the file's ", raw.size(),
                     " bytes cannot hold them: the copy is incomplete, fetch it again");

  // The vector grows as bytes arrive, so a wrong header cannot cause an allocation of many times the file.
  const std::size_t first = std::max(kFirstPiece, kUsualExpansion * raw.size());
  std::size_t arrived = 0;
  while (arrived < total) {
    array.bytes.resize(std::min(total, std::max(first, 2 * arrived)));
    const std::size_t got = content.read(std::span(array.bytes).subspan(arrived));
    arrived += got;
    require<DataError>(arrived == array.bytes.size(), "'", name, "' promises ", listed(array.shape, " x "), " = ",
                       total, " bytes and holds ", arrived, ": the copy is incomplete, fetch it again");
  }
  // Reading beyond the end also makes zlib verify the checksum.
  std::array<std::uint8_t, 1> beyond{};
  require<DataError>(content.read(beyond) == 0, "'", name, "' promises ", listed(array.shape, " x "), " = ", total,
                     " bytes and holds more");
  return array;
}

IdxArray read_idx(const std::string& path, const IdxLimits& limits) {
  constexpr std::size_t longest_header = 4 + 4 * 255;
  return parse_idx(read_whole_file(path, limits.max_bytes + longest_header), path, limits);
}

std::size_t count_cifar10_records(std::span<const std::uint8_t> file, const std::string& name) {
  const std::size_t count = file.size() / Cifar10Record::bytes;
  require<DataError>(!file.empty(), "'", name, "' has no records: it is empty");
  require<DataError>(file.size() % Cifar10Record::bytes == 0, "'", name, "' has ", file.size(), " bytes, which is ",
                     count, " records of ", Cifar10Record::bytes, " and ", file.size() % Cifar10Record::bytes,
                     " bytes more: the copy is incomplete, fetch it again");
  for (std::size_t record = 0; record < count; ++record) {
    const int label = file[record * Cifar10Record::bytes];
    require<DataError>(label < Cifar10Record::classes, "'", name, "' says that sample ", record, " is of class ", label,
                       ": classes are below ", Cifar10Record::classes);
  }
  return count;
}

}  // namespace penstock
