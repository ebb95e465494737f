#include "penstock/cli/data_flags.h"

#include <cstdlib>
#include <sstream>
#include <vector>

#include <CLI/CLI.hpp>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/cli/value_flags.h"
#include "penstock/hf/model.h"
#include "penstock/train/trainer.h"

namespace penstock::cli {
namespace {

/// The help text of --augment.
constexpr const char* augment_help =
    "cifar10, training set, by seed, epoch and sample: one or more of crop (of 32 x 32 out of a border of 4), flip, "
    "resized-crop, autoaugment (the CIFAR-10 policy), autoaugment-imagenet, randaugment[:OPERATIONS[:MAGNITUDE]] and "
    "color-jitter, separated by commas; crop-flip, which it means without a value, is crop,flip; none";

int whole_number(const std::string& text, const std::string& argument) {
  const auto number = number_of<int>(text);
  require<ConfigError>(number.has_value(), "--augment ", argument, ": '", text,
                       "' is not a whole number; randaugment:2:9 means 2 operations of magnitude 9");
  return *number;
}

/// Parses "randaugment:2:9".
RandAugment parse_rand_augment(const std::string& argument) {
  RandAugment options;
  std::istringstream parts(argument);
  std::string part;
  std::getline(parts, part, ':');  // skips the name
  if (std::getline(parts, part, ':')) options.operations = whole_number(part, argument);
  if (std::getline(parts, part, ':')) options.magnitude = whole_number(part, argument);
  require<ConfigError>(!std::getline(parts, part, ':'), "--augment ", argument,
                       ": pass at most two numbers, randaugment:OPERATIONS:MAGNITUDE");
  require<ConfigError>(options.operations >= 1 && options.magnitude >= 0 && options.magnitude <= 30, "--augment ",
                       argument, ": OPERATIONS is 1 or more, MAGNITUDE 0 to 30");
  return options;
}

/// Parses a list of the names in augment_help. Transforms are applied in the order of ImageTransforms, whatever the
/// order of the names. `side` is the size in pixels to which resized-crop resizes. Throws ConfigError, which suggests
/// the nearest name, for an unknown name.
ImageTransforms parse_augmentation(const std::string& text, std::int64_t side) {
  const std::vector<std::string> known = {"crop-flip",    "crop",         "flip",
                                          "resized-crop", "autoaugment",  "autoaugment-imagenet",
                                          "randaugment",  "color-jitter", "none"};
  ImageTransforms transforms;
  const auto set_policy = [&](AugmentPolicy policy) {
    require<ConfigError>(transforms.policy == AugmentPolicy::none || transforms.policy == policy, "--augment ", text,
                         ": pass one of autoaugment, autoaugment-imagenet and randaugment");
    transforms.policy = policy;
  };
  std::istringstream list(text);
  for (std::string argument; std::getline(list, argument, ',');) {
    const std::string name = argument.substr(0, argument.find(':'));
    const std::string& meant = nearest(name, known);
    require<ConfigError>(meant == name && (name == argument || name == "randaugment"), "--augment: there is no '",
                         argument, "': did you mean '", meant,
                         "'? There are crop-flip, crop, flip, resized-crop, autoaugment, ",
                         "autoaugment-imagenet, randaugment[:OPERATIONS[:MAGNITUDE]], color-jitter and none");
    if (name == "crop" || name == "crop-flip") transforms.pad = cifar10_augmentation.pad;
    if (name == "flip" || name == "crop-flip") transforms.flip = true;
    if (name == "resized-crop") transforms.resized_crop.size = side;
    if (name == "autoaugment") set_policy(AugmentPolicy::autoaugment_cifar10);
    if (name == "autoaugment-imagenet") set_policy(AugmentPolicy::autoaugment_imagenet);
    if (name == "randaugment") {
      set_policy(AugmentPolicy::randaugment);
      transforms.rand_augment = parse_rand_augment(argument);
    }
    if (name == "color-jitter")
      transforms.color_jitter = {.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1};
  }
  return transforms;
}

ImageSet read_half(const DataFlags& flags, const ModelFlags& model, DataPart part) {
  const std::string directory = data_directory(flags);
  ImageSet set = dataset_of(model) == "cifar10" ? load_cifar10(directory, part) : load_mnist(directory, part);
  if (flags.normalize == "none") {
    set.mean = {0};
    set.std = {1};
  }
  return set;
}

LoaderOptions reading_as(const DataFlags& flags, LoaderOptions options) {
  options.shuffle = flags.shuffle;
  options.drop_last = flags.drop_last;
  return options;
}

LoaderOptions with_transforms(LoaderOptions options, const DataFlags& flags, const ModelFlags& model) {
  // The crop resizes directly from the stored pixels to the final size.
  options.transforms = parse_augmentation(flags.augment, model.image_size.value_or(32));
  options.transforms.resize = model.image_size.value_or(0);
  return options;
}

std::shared_ptr<const SampleSource> token_windows(const TokenRange& tokens, const DataFlags& flags,
                                                  const ModelFlags& model, bool random) {
  return text_windows(tokens, {.length = context_of(model), .random = random, .documents = flags.separate_documents});
}

Loader train_loader(const DataSets& sets, const DataFlags& flags, const ModelFlags& model,
                    const LoaderOptions& options) {
  if (sets.tokens) return Loader(token_windows(sets.tokens->train, flags, model, flags.shuffle), options);
  if (!sets.text) return Loader(sets.train, with_transforms(options, flags, model));
  // Without shuffling, a text is read as consecutive windows.
  const std::int64_t length = gpt_options(model).context;
  return Loader(text_windows(sets.text->train, {.length = length, .random = flags.shuffle}), options);
}

}  // namespace

std::string is_no_url(const std::string& text) {
  return text.find("://") == std::string::npos
             ? std::string()
             : "this is a URL, and nothing is downloaded: fetch the data set, and pass the directory of its files";
}

void DataFlags::add_to(CLI::App& app) {
  app.add_option(
         "--data", directory,
         "directory of the data set's files (default: $PENSTOCK_DATA, else data); hf:DIR: a file of tokens, from "
         "`penstock tokenize`, llm.c or nanoGPT")
      ->check(CLI::Validator(is_no_url, ""));
  app.add_flag("--shuffle,!--no-shuffle", shuffle, "read the samples in a random order, or in the stored order")
      ->default_str("true");
  app.add_flag("--separate-documents", separate_documents,
               "hf:DIR: tokens attend only to their own document in a window of several");
  app.add_flag("--drop-last", drop_last, "omit a last batch that is smaller than --batch-size");
  // The last of the two flags counts.
  const auto set_augment = [this](const std::string& text) {
    augment = text.empty() || text == "true" ? "crop-flip" : text == "false" ? "none" : text;
  };
  app.add_option_function<std::string>("--augment", set_augment, augment_help)
      ->expected(0, 1)
      ->type_name("TEXT")
      ->trigger_on_parse();
  app.add_flag_callback(
         "--no-augment", [this] { augment = "none"; }, "the same as --augment none")
      ->trigger_on_parse();
  add_choice(app, "--normalize", normalize, {"standard", "none"},
             "standard: pixel / 255, less the data set's mean, over its deviation; none: pixel / 255");
}

std::string data_directory(const DataFlags& flags) {
  if (!flags.directory.empty()) return flags.directory;
  const char* environment = std::getenv("PENSTOCK_DATA");
  return environment ? environment : "data";
}

DataSets read_data(const DataFlags& flags, const ModelFlags& model, bool with_test) {
  check_model(model);
  require<ConfigError>(model.model != "unet", "no data set here has images as targets, which --model unet needs: ",
                       "examples/unet_skip.cc trains one, and penstock bench step measures it");
  (void)parse_augmentation(flags.augment, 32);  // throws before files are read
  require<ConfigError>(flags.augment == "none" || dataset_of(model) == "cifar10", "--augment is for cifar10, not for ",
                       dataset_of(model), ": a mirrored digit is not a digit");
  require<ConfigError>(model.model != "tied-lm",
                       "no data set here fits --model tied-lm: penstock infer runs it, examples/tied_inference.cc too");
  DataSets sets;
  sets.with_test = with_test;
  require<ConfigError>(!flags.separate_documents || hf_directory(model),
                       "--separate-documents is for hf:DIR, not for --model ", model.model, ": leave it out");
  if (const auto directory = hf_directory(model)) {
    require<ConfigError>(!flags.directory.empty(), "--model ", model.model,
                         " is trained and evaluated on a file of tokens: pass --data FILE, written by penstock "
                         "tokenize");
    sets.tokens = load_tokens(flags.directory, hf::read_config(*directory).vocabulary);
    return sets;
  }
  if (dataset_of(model) == "text") {
    sets.text = load_text(data_directory(flags));
    return sets;
  }
  sets.train = read_half(flags, model, DataPart::train);
  if (with_test) sets.test = read_half(flags, model, DataPart::test);
  return sets;
}

Batch sample_of(const DataSets& sets, const DataFlags& flags, const ModelFlags& model, const LoaderOptions& reading) {
  LoaderOptions options = reading_as(flags, reading);
  options.shuffle = false;
  options.prefetch = 0;
  Loader loader = train_loader(sets, flags, model, options);
  return *loader.begin();
}

Loaders make_loaders(DataSets sets, const DataFlags& flags, const ModelFlags& model, const LoaderOptions& reading,
                     const Pipeline& pipeline) {
  const LoaderOptions options = for_this_process(pipeline, reading_as(flags, reading));
  Loaders loaders{train_loader(sets, flags, model, options), {}};
  if (sets.text && sets.with_test)
    loaders.test.emplace(text_windows(sets.text->validation, {.length = gpt_options(model).context, .random = false}),
                         for_test(options));
  if (sets.tokens && sets.with_test)
    loaders.test.emplace(token_windows(sets.tokens->validation, flags, model, /*random=*/false), for_test(options));
  if (sets.test) loaders.test.emplace(std::move(*sets.test), for_test(with_transforms(options, flags, model)));
  return loaders;
}

}  // namespace penstock::cli
