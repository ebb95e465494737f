// The flags that say where samples come from and how they are read: shared by all verbs that read data.
#pragma once

#include <optional>
#include <string>

#include <CLI/App.hpp>
#include <nlohmann/json_fwd.hpp>

#include "penstock/cli/model_flags.h"
#include "penstock/data/data.h"
#include "penstock/runtime/pipeline.h"

namespace penstock {

struct DataFlags {
  std::string directory;
  bool shuffle = true;
  bool drop_last = false;
  std::string augment = "none";  // a list of names: augment_flag.h
  std::string normalize = "standard";

  void add_to(CLI::App& app);
};

/// --data, else $PENSTOCK_DATA, else what the repository ships: data.
std::string data_directory(const DataFlags& flags);

/// A model's data set as stored: images, or a text with its vocabulary.
struct DataSets {
  ImageSet train;
  std::optional<ImageSet> test;
  std::optional<TextSet> text;
  bool with_test = false;
};

/// Every process reads its files before the ranks start: where one finds them wanting, nobody waits for it in vain.
/// Throws ConfigError for flags that do not fit the data set, and DataError.
DataSets read_data(const DataFlags& flags, const ModelFlags& model, bool with_test);

struct Loaders {
  Loader train;
  std::optional<Loader> test;
};

/// What a loader needs to know besides.
struct ReadingOptions {
  std::int64_t batch_size = 32;
  std::uint64_t seed = 0;
};

/// The first batch, as the network gets it, on every process alike: to measure with.
Batch sample_of(const DataSets& sets, const DataFlags& flags, const ModelFlags& model, const ReadingOptions& reading);

/// Loaders for this process of `pipeline`. The test set is read in order, to its last sample, and never augmented.
Loaders make_loaders(DataSets sets, const DataFlags& flags, const ModelFlags& model, const ReadingOptions& reading,
                     const Pipeline& pipeline);

}  // namespace penstock
