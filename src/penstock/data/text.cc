#include "penstock/data/text.h"

#include <algorithm>
#include <filesystem>

#include "penstock/base/error.h"
#include "penstock/base/hash.h"
#include "penstock/data/data_files.h"

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
                      "': pass a file, or a folder that contains, itself or in its folder 'text', ", known_name,
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

namespace {

constexpr std::int64_t padding_target = -100;

/// Mixes three numbers into one.
std::uint64_t mixed(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample) {
  std::uint64_t state = 0;
  for (const std::uint64_t part : {seed, epoch, sample}) state = Splitmix(state ^ part).next();
  return state;
}

class TextWindows : public SampleSource {
 public:
  TextWindows(torch::Tensor tokens, const WindowOptions& options) : options_(options) {
    require<ConfigError>(tokens.defined() && tokens.dim() == 1 && tokens.scalar_type() == torch::kInt64,
                         "a text is [N] of int64");
    tokens_ = tokens.to(torch::kCPU).contiguous();
    require<ConfigError>(options.length >= 1 && options.length < tokens_.size(0), "windows of ", options.length,
                         " tokens out of ", tokens_.size(0), ": pass 1 to ", tokens_.size(0) - 1);
  }

  std::int64_t size() const override {
    const std::int64_t targets = tokens_.size(0) - 1;
    return options_.random ? targets / options_.length : (targets + options_.length - 1) / options_.length;
  }

  Batch make(const Request& request) const override {
    const auto count = static_cast<std::int64_t>(request.samples.size());
    Batch batch{torch::empty({request.inputs.size(), options_.length}, torch::kInt64),
                torch::empty({count, options_.length}, torch::kInt64)};
    auto* input = batch.inputs[0].data_ptr<std::int64_t>();
    auto* target = batch.targets[0].data_ptr<std::int64_t>();
    for (std::int64_t row = 0; row < count; ++row) {
      const std::int64_t begin = begin_of(request, request.samples[static_cast<std::size_t>(row)]);
      if (row >= request.inputs.begin && row < request.inputs.end) input = copy(begin, 0, input);
      target = copy(begin + 1, padding_target, target);
    }
    return batch;
  }

 private:
  std::int64_t begin_of(const Request& request, std::int64_t sample) const {
    if (!options_.random) return sample * options_.length;
    // The bias of the remainder is below N / 2^64.
    const auto places = static_cast<std::uint64_t>(tokens_.size(0) - options_.length);
    const std::uint64_t number = mixed(request.seed, request.epoch, static_cast<std::uint64_t>(sample));
    return static_cast<std::int64_t>(number % places);
  }

  /// Writes one window, padded with `filling` after the end of the text. Returns the end of what was written.
  std::int64_t* copy(std::int64_t begin, std::int64_t filling, std::int64_t* out) const {
    const std::int64_t there = std::clamp(tokens_.size(0) - begin, std::int64_t{0}, options_.length);
    out = std::copy_n(tokens_.const_data_ptr<std::int64_t>() + begin, there, out);
    return std::fill_n(out, options_.length - there, filling);
  }

  torch::Tensor tokens_;
  WindowOptions options_;
};

}  // namespace

std::shared_ptr<const SampleSource> text_windows(torch::Tensor tokens, const WindowOptions& options) {
  return std::make_shared<TextWindows>(std::move(tokens), options);
}

}  // namespace penstock
