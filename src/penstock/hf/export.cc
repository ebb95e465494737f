#include "penstock/hf/export.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/base/text.h"
#include "penstock/checkpoint/durable_files.h"
#include "penstock/checkpoint/export_weights.h"
#include "penstock/hf/lora_config.h"
#include "penstock/hf/weight_files.h"

namespace penstock::hf {
namespace {

namespace fs = std::filesystem;

constexpr const char* config_file = "config.json";
constexpr std::uint64_t largest_file = 1'000'000'000;

/// The files of a tokenizer in all its forms, and of generation; a directory has some of them.
constexpr std::array copied_files{"generation_config.json",  "tokenizer.json",    "tokenizer_config.json",
                                  "tokenizer.model",         "vocab.json",        "merges.txt",
                                  "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
                                  "chat_template.json"};

std::string text_of(const fs::path& path) {
  return ReadFile(SystemCalls::real(), path.string(), SymbolicLinks::followed).text(largest_file);
}

void write_text_file(const fs::path& path, const std::string& text) {
  replace_file(SystemCalls::real(), path.string(), text.size(), [&](NewFile& out) { out.write(bytes_in(text)); });
}

/// The settings of the training, from the metadata of its weights; null if there are none.
nlohmann::json recorded_settings(const Checkpoint& checkpoint) {
  for (std::size_t i = 0; i < checkpoint.manifest().files.size(); ++i) {
    const auto found = checkpoint.metadata(i).find(settings_key);
    if (checkpoint.manifest().files[i].kind != FileKind::model || found == checkpoint.metadata(i).end()) continue;
    return nlohmann::json::parse(found->second, nullptr, /*allow_exceptions=*/false);
  }
  return nullptr;
}

/// The directory of the model's other files: the wanted one, or the one with which the training began.
std::string original_directory(const Checkpoint& checkpoint, const DirectoryExport& wanted) {
  if (!wanted.original.empty()) return wanted.original;
  const auto settings = recorded_settings(checkpoint);
  const std::string model = settings.is_object() ? settings.value("model", "") : "";
  require<ConfigError>(model.starts_with(model_prefix), checkpoint.directory(), " is of the model '", printable(model),
                       "', not of a Hugging Face directory: leave out --format, or pass --original DIR");
  return model.substr(model_prefix.size());
}

/// Throws ConfigError for a checkpoint without adapters.
LoraOptions recorded_lora(const Checkpoint& checkpoint) {
  const auto settings = recorded_settings(checkpoint);
  require<ConfigError>(settings.is_object() && settings.contains(lora_key), checkpoint.directory(),
                       " is of a training without adapters: pass --format hf");
  return parse_adapter_config(json_text(settings[lora_key]), say(checkpoint.directory(), ": its ", settings_key));
}

/// config.json with the dtype of the weights of a checkpoint.
std::string config_text(const fs::path& original) {
  const fs::path path = original / config_file;
  std::error_code ignored;
  require<DataError>(fs::exists(path, ignored), "the files beside the weights are taken from ", original.string(),
                     ", which has no ", config_file, ": pass --original DIR, the model's directory");
  auto config = nlohmann::ordered_json::parse(text_of(path), nullptr, /*allow_exceptions=*/false);
  require<DataError>(config.is_object(), path.string(), ": it is not a JSON object");
  const bool is_older = config.contains("torch_dtype");  // of transformers before 5
  config[is_older ? "torch_dtype" : "dtype"] = "float32";
  return json_text(config, 2) + "\n";
}

/// Makes the directory. Other weights in it would be read instead of these, or beside them.
void make_output(const std::string& directory) {
  std::vector<std::string> names;
  (void)list_names(SystemCalls::real(), directory, names);
  for (const std::string& name : names)
    require<ConfigError>(name.find(".safetensors") == std::string::npos && !name.starts_with("pytorch_model"),
                         directory, " has weights already: ", name, "; pass another --output");
  require_outside_of_checkpoints((fs::path(directory) / config_file).string());
  make_directories(SystemCalls::real(), directory);
}

float number_from(TensorType type, const std::byte* bytes) {
  constexpr int bf16_shift = 16, sign_shift = 15, exponent_shift = 10, exponent_mask = 31, exponent_bias = 25;
  constexpr int mantissa_mask = 1023, hidden_bit = 1024;
  std::uint16_t half = 0;
  std::memcpy(&half, bytes, sizeof(half));
  float number = 0;
  if (type == TensorType::bf16) {
    const std::uint32_t bits = std::uint32_t{half} << bf16_shift;
    std::memcpy(&number, &bits, sizeof(number));
    return number;
  }
  const int exponent = half >> exponent_shift & exponent_mask, mantissa = half & mantissa_mask;
  if (exponent == exponent_mask)
    number = mantissa == 0 ? INFINITY : NAN;
  else
    number = std::ldexp(static_cast<float>(exponent == 0 ? mantissa : mantissa | hidden_bit),
                        std::max(exponent, 1) - exponent_bias);
  return half >> sign_shift ? -number : number;
}

/// Reads a tensor of `files` as fp32.
void read_as_f32(const WeightFiles::Place& place, std::span<std::byte> into) {
  const std::uint64_t begin = place.file->data_begin + place.tensor.begin;
  if (place.tensor.type == TensorType::f32) return place.file->file.read(begin, into);
  constexpr std::size_t half_size = 2;
  // The second half of the memory holds what is read, of which a number is used before it is overwritten.
  const std::span<std::byte> read = into.subspan(into.size() / 2);
  place.file->file.read(begin, read);
  for (std::size_t i = 0; i < into.size() / sizeof(float); ++i) {
    const float number = number_from(place.tensor.type, read.data() + i * half_size);
    std::memcpy(into.data() + i * sizeof(float), &number, sizeof(number));
  }
}

/// Adds the frozen parameters that `checkpoint` leaves out, from the original directory's files.
void add_left_out(ExportedWeights& weights, const Checkpoint& checkpoint, const std::string& original) {
  std::shared_ptr<const WeightFiles> files;
  for (const auto& [name, checksum] : checkpoint.frozen().value_or(FrozenParameters())) {
    if (!checksum || weights.tensors.contains(name)) continue;
    if (!files) files = std::make_shared<WeightFiles>(original);
    // Files of a model without a head lack the first part of the names.
    auto found = files->places().find(name);
    if (found == files->places().end()) found = files->places().find(name.substr(name.find('.') + 1));
    require<DataError>(found != files->places().end(), checkpoint.directory(), " leaves out the frozen '",
                       printable(name), "', which ", original, " does not have: pass --original DIR");
    const WeightFiles::Place& place = found->second;
    const TensorType type = place.tensor.type;
    require<DataError>(type == TensorType::f32 || type == TensorType::bf16 || type == TensorType::f16, original,
                       " has '", printable(name), "' as ", to_string(type), ": only F32, BF16 and F16 are read");
    const auto read = [files, &place, name = name, wanted = *checksum, original](std::span<std::byte> into) {
      read_as_f32(place, into);
      require<DataError>(checksum_of(into) == wanted, original, " has other values of '", printable(name),
                         "' than the training began with: pass --original DIR, the directory as it was");
    };
    weights.tensors[name] = {TensorType::f32, place.tensor.shape, read};
  }
}

std::vector<float> floats_of(const ExportedTensor& tensor) {
  std::vector<float> numbers(size_in_bytes(tensor.type, tensor.shape).value_or(0) / sizeof(float));
  tensor.read(std::as_writable_bytes(std::span(numbers)));
  return numbers;
}

/// An adapter's two matrices: A [rank, in] and B [out, rank].
struct Adapter {
  ExportedTensor a, b;
  double scale = 1;
  bool is_transposed = false;  // the weight is [in, out]

  std::size_t rank() const { return static_cast<std::size_t>(a.shape[0]); }
  std::size_t in() const { return static_cast<std::size_t>(a.shape[1]); }
  std::size_t out() const { return static_cast<std::size_t>(b.shape[0]); }
};

/// weight += scale * B A, in fp32.
void add_product(const Adapter& adapter, std::span<std::byte> weight) {
  const std::vector<float> a = floats_of(adapter.a), b = floats_of(adapter.b);
  const std::size_t rank = adapter.rank(), in = adapter.in(), out = adapter.out();
  const std::size_t columns = adapter.is_transposed ? out : in;
  std::vector<float> row(columns), sum(columns);
  for (std::size_t i = 0; i < (adapter.is_transposed ? in : out); ++i) {
    const std::span<std::byte> bytes = weight.subspan(i * columns * sizeof(float), columns * sizeof(float));
    std::memcpy(row.data(), bytes.data(), bytes.size());
    std::ranges::fill(sum, 0.0F);
    for (std::size_t k = 0; k < rank; ++k)
      for (std::size_t j = 0; j < columns; ++j)
        sum[j] += adapter.is_transposed ? b[j * rank + k] * a[k * in + i] : b[i * rank + k] * a[k * in + j];
    for (std::size_t j = 0; j < columns; ++j) row[j] += static_cast<float>(adapter.scale) * sum[j];
    std::memcpy(bytes.data(), row.data(), bytes.size());
  }
}

/// Replaces the adapters in `weights` by the weights to which they add.
void merge(ExportedWeights& weights, const LoraOptions& options) {
  const std::string end_of_a = say(".", lora_a, ".weight"), end_of_b = say(".", lora_b, ".weight");
  ExportedWeights merged;  // without the metadata, which describe the model with adapters
  for (const auto& [name, tensor] : weights.tensors)
    if (!is_lora(name)) merged.tensors[name] = tensor;
  for (const auto& [name, tensor] : weights.tensors) {
    if (!name.ends_with(end_of_a)) continue;
    const std::string layer = name.substr(0, name.size() - end_of_a.size());
    const auto b = weights.tensors.find(layer + end_of_b), weight = merged.tensors.find(layer + ".weight");
    require<ConfigError>(weight != merged.tensors.end(), "the adapter of '", printable(layer),
                         "' has no weight of its own to be added to, because it is tied: pass --format peft");
    const bool has_shapes = b != weights.tensors.end() && tensor.shape.size() == 2 && b->second.shape.size() == 2 &&
                            tensor.shape[0] == b->second.shape[1] && tensor.type == TensorType::f32 &&
                            b->second.type == TensorType::f32 && weight->second.type == TensorType::f32;
    require<DataError>(has_shapes, "the adapter of '", printable(layer), "' is not two fp32 matrices of one rank");
    const std::vector<std::int64_t> plain{b->second.shape[0], tensor.shape[1]}, transposed{plain[1], plain[0]};
    const Adapter adapter{tensor, b->second, options.scale(),
                          options.fan_in_fan_out && weight->second.shape == transposed};
    require<DataError>(weight->second.shape == (adapter.is_transposed ? transposed : plain), "the adapter of '",
                       printable(layer), "' is for a weight of shape ", shape_text(plain), ", which has ",
                       shape_text(weight->second.shape));
    weight->second.read = [base = weight->second.read, adapter](std::span<std::byte> into) {
      base(into);
      add_product(adapter, into);
    };
  }
  weights = std::move(merged);
}

}  // namespace

std::vector<std::string> export_directory(const Checkpoint& checkpoint, const DirectoryExport& wanted) {
  const fs::path original = original_directory(checkpoint, wanted), output = wanted.output;
  const std::string config = config_text(original);
  ExportedWeights weights = weights_of(checkpoint);
  add_left_out(weights, checkpoint, original.string());
  const bool has_adapters = std::ranges::any_of(weights.tensors, [](const auto& one) { return is_lora(one.first); });
  if (has_adapters) merge(weights, recorded_lora(checkpoint));
  make_output(wanted.output);
  std::vector<std::string> written =
      export_weights(weights, (output / "model.safetensors").string(), wanted.most_bytes);
  for (const char* name : copied_files) {
    std::error_code ignored;
    if (!fs::exists(original / name, ignored)) continue;
    write_text_file(output / name, text_of(original / name));
    written.push_back((output / name).string());
  }
  write_text_file(output / config_file, config);
  written.push_back((output / config_file).string());
  return written;
}

std::vector<std::string> export_adapter(const Checkpoint& checkpoint, const DirectoryExport& wanted) {
  const LoraOptions options = recorded_lora(checkpoint);
  const std::string original = original_directory(checkpoint, wanted);
  const ExportedWeights all = weights_of(checkpoint);
  ExportedWeights adapter;
  for (const auto& [name, tensor] : all.tensors)
    if (is_lora(name)) adapter.tensors[adapter_prefix + name] = tensor;
  make_output(wanted.output);
  const fs::path output = wanted.output, config = output / "adapter_config.json";
  std::vector<std::string> written = export_weights(adapter, (output / adapter_file).string(), std::nullopt);
  write_text_file(config, adapter_config_text(options, original));
  written.push_back(config.string());
  return written;
}

}  // namespace penstock::hf
