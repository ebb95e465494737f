// The flags for data sets and loaders, shared by all verbs that read data.
#pragma once

#include <optional>
#include <string>

#include <CLI/App.hpp>
#include <nlohmann/json_fwd.hpp>

#include "penstock/cli/model_flags.h"
#include "penstock/data/data.h"
#include "penstock/pipeline/pipeline.h"

namespace penstock::cli {

struct DataFlags {
  std::string directory;
  bool shuffle = true;
  bool drop_last = false;
  std::string augment = "none";  // a list of names, as the help of --augment has them
  std::string normalize = "standard";
  bool separate_documents = false;

  void add_to(CLI::App& app);
};

/// The check of --data: an error message for a URL, which may contain a password and is not repeated; else empty.
std::string is_no_url(const std::string& text);

/// The value of --data, else $PENSTOCK_DATA, else the repository's folder `data`.
std::string data_directory(const DataFlags& flags);

/// The data set of a model as stored: images, a text with its vocabulary, or a file of tokens.
struct DataSets {
  ImageSet train;
  std::optional<ImageSet> test;
  std::optional<TextSet> text;
  std::optional<TokenSet> tokens;
  bool with_test = false;
};

/// Reads the files of the data set. Every process calls it before the ranks start, so that no rank waits for a process
/// that fails here. Throws ConfigError for flags that do not fit the data set, and DataError for its files.
DataSets read_data(const DataFlags& flags, const ModelFlags& model, bool with_test);

struct Loaders {
  Loader train;
  std::optional<Loader> test;
};

/// The first batch of the training set, complete and equal on every process; used to measure layer times. `reading` has
/// the batch size and the seed, and the flags say the rest.
Batch sample_of(const DataSets& sets, const DataFlags& flags, const ModelFlags& model, const LoaderOptions& reading);

/// Makes the loaders of this process of `pipeline`. The test set is read in order and completely, without augmentation.
Loaders make_loaders(DataSets sets, const DataFlags& flags, const ModelFlags& model, const LoaderOptions& reading,
                     const Pipeline& pipeline);

}  // namespace penstock::cli
