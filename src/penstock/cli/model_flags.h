// The flags for the network and its data set, shared by all verbs that have a network.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <nlohmann/json_fwd.hpp>

#include "penstock/data/data.h"
#include "penstock/hf/lora_config.h"
#include "penstock/hf/weights.h"
#include "penstock/model/model.h"
#include "penstock/zoo/gpt.h"

namespace penstock::cli {

/// Defaults of two flags of the model gpt. A verb may change them before it calls add_to.
struct GptDefaults {
  double dropout = GptOptions().dropout;
  std::string head = "tied";
};

struct ModelFlags {
  std::string model = "mlp";
  std::string dataset;  // empty: the model's default
  // Each applies to some of the models only; unset: the model's default.
  std::optional<std::string> hidden;
  std::optional<std::int64_t> classes;
  std::optional<std::int64_t> width;
  std::optional<std::int64_t> image_size;
  std::optional<std::string> variant;
  std::optional<std::string> stem;
  std::optional<double> norm_momentum;
  std::optional<std::int64_t> layers;
  std::optional<std::int64_t> heads;
  std::optional<std::int64_t> context;
  std::optional<double> dropout;
  std::optional<std::string> head;
  std::optional<std::string> init;
  std::optional<std::int64_t> lora;       // rank of the adapters
  std::vector<std::string> lora_targets;  // empty: the default
  std::optional<double> lora_alpha;
  std::string adapter;  // a directory of PEFT's; empty: none
  GptDefaults defaults;
  std::int64_t vocabulary = 65;    // for gpt; not a flag, taken from the text
  bool has_other_weights = false;  // not a flag: a checkpoint or a file has the weights, and hf:DIR's are not read

  void add_to(CLI::App& app);
  bool is_model_given() const;  // after parsing: whether --model was given

 private:
  const CLI::Option* model_option_ = nullptr;
};

/// Throws ConfigError for a flag that does not apply to this model, a data set that does not fit it, or an invalid
/// value. The functions below check this, too.
void check_model(const ModelFlags& flags);

/// "mnist", "cifar10" or "text": the flag, or the model's default; "tokens" for the model of a Hugging Face directory,
/// and "none" for a model without a data set.
std::string dataset_of(const ModelFlags& flags);

/// Whether it is one of the ResNets.
bool is_resnet(const ModelFlags& flags);
/// The directory of --model hf:DIR; none for other models.
std::optional<std::string> hf_directory(const ModelFlags& flags);
/// The model as checkpoints store it: with the absolute path of such a directory, so that a training can be continued
/// elsewhere.
std::string model_name(const ModelFlags& flags);
/// The files from which the model of a Hugging Face directory takes its weights; null if it takes none.
std::shared_ptr<const hf::MappedWeights> hf_weights(const ModelFlags& flags);
/// The adapters of the model of a Hugging Face directory, with the names of its layers; none if no flag asks for them.
/// Throws ConfigError for flags that contradict each other or the model, DataError for an unreadable --adapter.
std::optional<hf::LoraOptions> lora_of(const ModelFlags& flags);
/// The length of the sequences on which a language model is trained and evaluated, in tokens.
std::int64_t context_of(const ModelFlags& flags);
/// The options of the model gpt.
GptOptions gpt_options(const ModelFlags& flags);
/// With the values of `weights`, if any, instead of the initial ones; a model with adapters takes the tensors that
/// `weights` lacks from its directory.
std::unique_ptr<Cell> make_model(const ModelFlags& flags, const std::shared_ptr<const WeightSource>& weights = nullptr);
/// A number of parameters that make_model() surely exceeds or reaches, without making it: for sizes of unknown origin.
double least_parameters(const ModelFlags& flags);
/// The training loss of the model.
const Loss& loss_of(const ModelFlags& flags);

/// A random batch of the shape that the model takes, equal on every process.
Batch random_batch(const ModelFlags& flags, std::int64_t samples, std::uint64_t seed);

/// A description for the console: "resnet50 v1.5, stem imagenet, width 64, 10 classes, on cifar10".
std::string describe(const ModelFlags& flags);
/// The same as JSON: {"model": "resnet50", "dataset": "cifar10", ...}.
nlohmann::ordered_json settings_of(const ModelFlags& flags);

}  // namespace penstock::cli
