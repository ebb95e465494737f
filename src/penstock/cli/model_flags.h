// The flags that say which network it is and what it looks at: shared by all verbs that have a network.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <nlohmann/json_fwd.hpp>

#include "penstock/model/model.h"
#include "penstock/zoo/gpt.h"

namespace penstock {

/// Of gpt, where a flag is not given: a verb may have its own, set before add_to.
struct GptDefaults {
  double dropout = GptOptions().dropout;
  std::string head = "tied";
};

struct ModelFlags {
  std::string model = "mlp";
  std::string dataset;  // empty: the model's own
  // Each belongs to some of the models; none: the model's default.
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
  GptDefaults defaults;
  std::int64_t vocabulary = 65;  // of gpt: no flag, but what the text has

  void add_to(CLI::App& app);
  bool is_model_given() const;  // rather than the default; after parsing

 private:
  const CLI::Option* model_option_ = nullptr;
};

/// Throws ConfigError for a flag that this model does not have, a data set that it cannot take, or a value that cannot
/// be. The functions below check too.
void check_model(const ModelFlags& flags);

/// "mnist", "cifar10" or "text": as given, or the model's own; "none" for a model that no data set here fits.
std::string dataset_of(const ModelFlags& flags);

/// Of gpt.
GptOptions gpt_options(const ModelFlags& flags);
std::unique_ptr<Cell> make_model(const ModelFlags& flags);
/// What training it minimises.
const Loss& loss_of(const ModelFlags& flags);

/// Numbers of the shape that the model takes, the same on every process.
struct RandomBatch {
  torch::Tensor inputs, targets;
};
RandomBatch random_batch(const ModelFlags& flags, std::int64_t samples, std::uint64_t seed);

/// "resnet50 v1.5, stem imagenet, width 64, 10 classes, on cifar10": for people.
std::string describe(const ModelFlags& flags);
/// The same for machines: {"model": "resnet50", "dataset": "cifar10", ...}.
nlohmann::ordered_json settings_of(const ModelFlags& flags);

}  // namespace penstock
