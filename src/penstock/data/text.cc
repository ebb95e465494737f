#include "penstock/data/text.h"

#include <algorithm>
#include <filesystem>

#include "penstock/base/error.h"
#include "penstock/data/whole_file.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t least_bytes = 20;
constexpr std::size_t most_bytes = std::size_t{1} << 31;
constexpr const char* known_name = "tinyshakespeare.txt";

/// The text file in `folder`; empty if there is none.
fs::path find_in(const fs::path& folder) {
  std::error_code code;  // ignored: an unreadable folder counts as absent, and the caller reports it
  if (fs::is_regular_file(folder / known_name, code)) return folder / known_name;
  std::vector<fs::path> texts;
  for (const auto& entry : fs::directory_iterator(folder, code))
    if (entry.path().extension() == ".txt" && entry.is_regular_file(code)) texts.push_back(entry.path());
  return texts.size() == 1 ? texts.front() : fs::path();
}

fs::path find_text(const fs::path& path) {
  std::error_code code;
  if (fs::is_regular_file(path, code)) return path;
  for (const fs::path& folder : {path, path / "text"})
    if (const fs::path found = find_in(folder); !found.empty()) return found;
  throw DataError(say("no text in '", path.string(),
                      "': give a file, or a folder that contains, itself or in its folder 'text', ", known_name,
                      " or a single .txt file"));
}

torch::Tensor tensor_of(const std::vector<std::int64_t>& tokens) {
  torch::Tensor tensor = torch::empty({static_cast<std::int64_t>(tokens.size())}, torch::kInt64);
  std::copy(tokens.begin(), tokens.end(), tensor.data_ptr<std::int64_t>());
  return tensor;
}

}  // namespace

TextSet load_text(const std::string& path) {
  const fs::path file = find_text(path);
  const std::vector<std::uint8_t> bytes = read_whole_file(file.string(), most_bytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  require<DataError>(text.size() >= least_bytes, "'", file.string(), "' has ", text.size(),
                     " bytes: a text of at least ", least_bytes, " is needed to learn from");
  TextSet set{Vocabulary::of(text), {}, {}};
  const torch::Tensor tokens = tensor_of(set.vocabulary.encode(text));
  const std::int64_t trained = tokens.size(0) - tokens.size(0) / 10;
  set.train = tokens.narrow(0, 0, trained);
  set.validation = tokens.narrow(0, trained, tokens.size(0) - trained);
  return set;
}

}  // namespace penstock
