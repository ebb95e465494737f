// The list of architectures, and what they share when they read config.json. Internal to this module.
//
// A new architecture is a file with a function of type MakeModel, and its line in architectures.cc.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "penstock/hf/causal_lm.h"
#include "penstock/hf/config_file.h"

namespace penstock::hf {

/// How the layers of a model get their values when they are built.
struct Initial {
  bool is_random = true;  // otherwise parameters are left uninitialised, because weights are read into them
  double deviation = 0.02;
};

/// Makes a model from config.json; its layers are built later, by those who need them. Throws ConfigError for what the
/// architecture does not support.
using MakeModel = std::unique_ptr<CausalLm>(const ConfigFile&, Init);

/// By their names in config.json.
const std::map<std::string, MakeModel*>& architectures();

/// Calls the function of the architecture that config.json names. Throws ConfigError, which lists the known ones, for
/// another.
std::unique_ptr<CausalLm> make_model(const ConfigFile& file, Init init);

/// What differs between architectures in the values that they share.
struct CommonDefaults {
  std::string prefix;
  bool tied_head = false;
};

/// Reads the values that all architectures have, under each of their names.
Config read_common(const ConfigFile& file, const CommonDefaults& defaults);

/// For each block, how many positions a token attends to, itself included; 0: all before it. From layer_types and
/// sliding_window; a list without layer_types is `otherwise`. Throws ConfigError for other kinds of attention.
std::vector<std::int64_t> read_windows(const ConfigFile& file, const Config& config,
                                       const std::vector<std::int64_t>& otherwise);

}  // namespace penstock::hf
