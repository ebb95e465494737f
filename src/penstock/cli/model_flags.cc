#include "penstock/cli/model_flags.h"

#include <algorithm>
#include <filesystem>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/cli/value_flags.h"
#include "penstock/hf/export.h"
#include "penstock/hf/lora.h"
#include "penstock/hf/model.h"
#include "penstock/zoo/zoo.h"

namespace penstock::cli {
namespace {

using Names = std::vector<std::string>;

const Names resnets{"resnet18", "resnet34", "resnet50", "resnet101"};
const Names classifiers{"mlp", "resnet18", "resnet34", "resnet50", "resnet101", "vit-b16"};
const Names image_networks{"resnet18", "resnet34", "resnet50", "resnet101", "vit-b16", "unet"};
const Names networks{"mlp", "resnet18", "resnet34", "resnet50", "resnet101", "vit-b16", "unet", "gpt", "tied-lm"};

/// Properties of the images of a data set.
struct Images {
  std::int64_t channels = 1;
  std::int64_t side = 28;
  std::int64_t classes = 10;
};

Images images_of(const ModelFlags& flags) {
  Images images = dataset_of(flags) == "mnist" ? Images{1, 28, 10} : Images{3, 32, 10};
  images.side = flags.image_size.value_or(images.side);
  return images;
}

std::string hidden_of(const ModelFlags& flags) { return flags.hidden.value_or("512,512"); }

std::int64_t classes_of(const ModelFlags& flags) { return flags.classes.value_or(images_of(flags).classes); }

ResnetOptions resnet_options(const ModelFlags& flags) {
  ResnetOptions options;
  options.depth = std::stoi(flags.model.substr(std::string("resnet").size()));
  options.classes = classes_of(flags);
  options.image_channels = images_of(flags).channels;
  options.width = flags.width.value_or(options.width);
  if (flags.variant == "v1") options.variant = ResnetVariant::v1;
  if (flags.stem == "cifar") options.stem = ResnetStem::cifar;
  options.norm_momentum = flags.norm_momentum.value_or(options.norm_momentum);
  return options;
}

VitOptions vit_options(const ModelFlags& flags) {
  VitOptions options;
  options.classes = classes_of(flags);
  options.image_channels = images_of(flags).channels;
  options.image_side = images_of(flags).side;
  options.width = flags.width.value_or(options.width);
  options.layers = flags.layers.value_or(options.layers);
  options.heads = flags.heads.value_or(options.heads);
  return options;
}

UnetOptions unet_options(const ModelFlags& flags) {
  UnetOptions options;
  options.in_channels = options.out_channels = images_of(flags).channels;
  options.width = flags.width.value_or(options.width);
  return options;
}

hf::Init init_of(const ModelFlags& flags) {
  if (flags.init == "random") return hf::Init::random;
  return flags.has_other_weights ? hf::Init::later : hf::Init::weights;
}

/// The check of --model: an error message for a name that is none.
std::string known_model(const std::string& name) {
  const bool is_known = name.starts_with(hf::model_prefix) || std::ranges::find(networks, name) != networks.end();
  return is_known ? std::string() : say(name, " not in {", listed(networks), ", hf:DIR}");
}

}  // namespace

void ModelFlags::add_to(CLI::App& app) {
  model_option_ =
      app.add_option("--model", model, say(listed(networks), ", or hf:DIR, the model of a Hugging Face directory"))
          ->check(CLI::Validator(known_model, ""))
          ->capture_default_str();
  app.add_option("--dataset", dataset,
                 "mnist, cifar10 or text (default: mnist for mlp, text for gpt, cifar10 for the others)")
      ->check(CLI::IsMember({"mnist", "cifar10", "text"}))
      ->group("Data");
  app.add_option("--hidden", hidden, "mlp: widths of the hidden layers, 512,512 or 1024x8 (default: 512,512)");
  app.add_option("--classes", classes, "mlp, resnet, vit: number of classes (default: the data set's)");
  app.add_option(
      "--width", width,
      "resnet, unet: channels of the first layers (default: 64, unet 16); gpt, vit: width of the residual stream "
      "(default: 128, vit 768)");
  app.add_option("--image-size", image_size,
                 "resnet, vit, unet: images are resized to this height and width (default: the data set's size)");
  app.add_option("--variant", variant,
                 "resnet: v1 (stride in the first 1x1 convolution of a Bottleneck, 'same' padding) or v1.5 (stride in "
                 "the 3x3; the default)")
      ->check(CLI::IsMember({"v1", "v1.5"}));
  app.add_option("--stem", stem,
                 "resnet: imagenet (7x7 convolution and max pooling; the default) or cifar (3x3 convolution)")
      ->check(CLI::IsMember({"imagenet", "cifar"}));
  app.add_option("--norm-momentum", norm_momentum,
                 "resnet: weight of a micro-batch's statistics in BatchNorm's running statistics (default: 0.1)");
  app.add_option("--init", init,
                 "hf:DIR: weights (the directory's) or random (as its config.json says, by --seed; default: weights)")
      ->check(CLI::IsMember({"weights", "random"}));
  app.add_option("--lora", lora, "hf:DIR: rank of the adapters that train beside the frozen model (default: none)");
  app.add_option("--lora-targets", lora_targets, "layers with adapters, with or without _proj (default: q,v)")
      ->delimiter(',');
  app.add_option("--lora-alpha", lora_alpha, "adapters' outputs are multiplied by alpha / rank (default: 16)");
  app.add_option("--adapter", adapter, "hf:DIR: begin with these adapters, written by PEFT or checkpoint export")
      ->type_name("DIR");
  app.add_option("--layers", layers, "gpt, vit: blocks (default: 4, vit 12)");
  app.add_option("--heads", heads, "gpt, vit: attention heads, a divisor of the width (default: 4, vit 12)");
  app.add_option("--context", context,
                 "length of the training sequences, the longest of gpt (default: 64; hf:DIR: 512, or the model's "
                 "longest)");
  app.add_option("--dropout", dropout,
                 say("gpt, mlp: dropout probability in training (default: gpt ", defaults.dropout, ", mlp 0)"));
  app.add_option(
         "--head", head,
         "gpt: tied (the head shares the weight of the token embedding) or own (default: " + defaults.head + ")")
      ->check(CLI::IsMember({"tied", "own"}));
}

bool ModelFlags::is_model_given() const { return model_option_ && model_option_->count() > 0; }

void check_model(const ModelFlags& flags) {
  const auto belongs_to = [&](const char* flag, bool given, const Names& models) {
    const bool fits = std::find(models.begin(), models.end(), flags.model) != models.end();
    require<ConfigError>(!given || fits, flag, " is for ", listed(models), ", not for --model ", flags.model,
                         ": leave it out");
  };
  belongs_to("--hidden", flags.hidden.has_value(), {"mlp"});
  belongs_to("--classes", flags.classes.has_value(), classifiers);
  belongs_to("--width", flags.width.has_value(),
             {"resnet18", "resnet34", "resnet50", "resnet101", "vit-b16", "unet", "gpt"});
  belongs_to("--image-size", flags.image_size.has_value(), image_networks);
  belongs_to("--variant", flags.variant.has_value(), resnets);
  belongs_to("--stem", flags.stem.has_value(), resnets);
  belongs_to("--norm-momentum", flags.norm_momentum.has_value(), resnets);
  belongs_to("--layers", flags.layers.has_value(), {"gpt", "vit-b16"});
  belongs_to("--heads", flags.heads.has_value(), {"gpt", "vit-b16"});
  (void)lora_of(flags);
  if (const auto directory = hf_directory(flags)) {
    const std::int64_t longest = hf::read_config(*directory).context;
    require<ConfigError>(context_of(flags) >= 1 && context_of(flags) <= longest, "--context ", context_of(flags),
                         ", but the longest sequence of ", flags.model, " is ", longest, " tokens: pass 1 to ",
                         longest);
  } else {
    belongs_to("--context", flags.context.has_value(), {"gpt"});
    require<ConfigError>(!flags.init, "--init is for hf:DIR, not for --model ", flags.model, ": leave it out");
  }
  belongs_to("--dropout", flags.dropout.has_value(), {"gpt", "mlp"});
  belongs_to("--head", flags.head.has_value(), {"gpt"});
  const bool takes_tokens = flags.model == "gpt" || flags.model == "tied-lm" || hf_directory(flags);
  require<ConfigError>(takes_tokens == (dataset_of(flags) == "text") || flags.dataset.empty(), "--dataset ",
                       flags.dataset, " is not for --model ", flags.model, ": leave it out");
  if (takes_tokens) return;

  const Images images = images_of(flags);
  require<ConfigError>(classes_of(flags) >= images.classes, "--classes ", classes_of(flags), ", but ",
                       dataset_of(flags), " has ", images.classes, ": pass as many or more");
  require<ConfigError>(images.side >= 1, "--image-size ", images.side, ": pass 1 or more pixels a side");
}

std::string dataset_of(const ModelFlags& flags) {
  if (!flags.dataset.empty()) return flags.dataset;
  if (flags.model == "mlp") return "mnist";
  if (flags.model == "gpt") return "text";
  if (hf_directory(flags)) return "tokens";
  return flags.model == "tied-lm" ? "none" : "cifar10";
}

std::optional<std::string> hf_directory(const ModelFlags& flags) {
  if (!flags.model.starts_with(hf::model_prefix)) return std::nullopt;
  return flags.model.substr(hf::model_prefix.size());
}

std::string model_name(const ModelFlags& flags) {
  const auto directory = hf_directory(flags);
  if (!directory) return flags.model;
  return say(hf::model_prefix, std::filesystem::absolute(*directory).lexically_normal().string());
}

std::shared_ptr<const hf::MappedWeights> hf_weights(const ModelFlags& flags) {
  const auto directory = hf_directory(flags);
  if (!directory || init_of(flags) != hf::Init::weights) return nullptr;
  return hf::open_weights(hf::read_config(*directory));
}

std::optional<hf::LoraOptions> lora_of(const ModelFlags& flags) {
  const bool has_targets = !flags.lora_targets.empty();
  const char* flag = flags.lora         ? "--lora"
                     : has_targets      ? "--lora-targets"
                     : flags.lora_alpha ? "--lora-alpha"
                                        : nullptr;
  const bool has_adapter = !flags.adapter.empty();
  if (!flag && !has_adapter) return std::nullopt;
  const auto directory = hf_directory(flags);
  require<ConfigError>(directory.has_value(), flag ? flag : "--adapter", " is for hf:DIR, not for --model ",
                       flags.model, ": leave it out");
  hf::LoraOptions held;
  if (has_adapter) held = hf::completed(*directory, hf::read_adapter_config(flags.adapter));
  if (!flag) return held;
  require<ConfigError>(has_adapter || flags.lora, flag, " is for adapters: pass --lora RANK, too");
  hf::LoraOptions wanted = held;
  wanted.rank = flags.lora.value_or(held.rank);
  wanted.alpha = flags.lora_alpha.value_or(held.alpha);
  if (has_targets) wanted.targets = flags.lora_targets;
  wanted = hf::completed(*directory, wanted);
  require<ConfigError>(!has_adapter || wanted == held, "--adapter ", flags.adapter, " has ", to_string(held), ", but ",
                       flag, " asks for ", to_string(wanted), ": leave the second out");
  return wanted;
}

std::int64_t context_of(const ModelFlags& flags) {
  constexpr std::int64_t longest_by_default = 512;
  const auto directory = hf_directory(flags);
  if (!directory) return gpt_options(flags).context;
  return flags.context.value_or(std::min(longest_by_default, hf::read_config(*directory).context));
}

bool is_resnet(const ModelFlags& flags) { return flags.model.starts_with("resnet"); }

GptOptions gpt_options(const ModelFlags& flags) {
  GptOptions options;
  options.vocabulary = flags.vocabulary;
  options.context = flags.context.value_or(options.context);
  options.width = flags.width.value_or(options.width);
  options.layers = flags.layers.value_or(options.layers);
  options.heads = flags.heads.value_or(options.heads);
  options.dropout = flags.dropout.value_or(flags.defaults.dropout);
  options.tied_head = flags.head.value_or(flags.defaults.head) == "tied";
  return options;
}

namespace {

std::unique_ptr<Cell> hf_model(const ModelFlags& flags, const std::shared_ptr<const WeightSource>& weights) {
  hf::LoadOptions options{.init = init_of(flags), .lora = lora_of(flags)};
  if (options.lora) options.adapter = weights;
  require<ConfigError>(!weights || flags.adapter.empty(), "--weights ", weights ? weights->place() : "",
                       " and --adapter ", flags.adapter,
                       " both say with which values the model begins: ", "pass one of them");
  if (!flags.adapter.empty()) options.adapter = hf::read_adapter(flags.adapter);
  auto model = hf::load(*hf_directory(flags), options);
  if (weights && !options.lora) model->take_weights_from(weights);
  return model;
}

std::unique_ptr<Cell> zoo_model(const ModelFlags& flags) {
  if (flags.model == "gpt") return std::make_unique<Gpt>(gpt_options(flags));
  if (flags.model == "tied-lm") return std::make_unique<TiedLanguageModel>();
  if (is_resnet(flags)) return std::make_unique<Resnet>(resnet_options(flags));
  if (flags.model == "unet") return std::make_unique<Unet>(unet_options(flags));
  if (flags.model == "vit-b16") return std::make_unique<Vit>(vit_options(flags));
  const Images images = images_of(flags);
  MlpOptions options;
  options.inputs = images.channels * images.side * images.side;
  options.hidden = parse_widths(hidden_of(flags));
  options.classes = classes_of(flags);
  options.dropout = flags.dropout.value_or(options.dropout);
  return std::make_unique<Mlp>(options);
}

}  // namespace

std::unique_ptr<Cell> make_model(const ModelFlags& flags, const std::shared_ptr<const WeightSource>& weights) {
  check_model(flags);
  if (hf_directory(flags)) return hf_model(flags, weights);
  auto network = zoo_model(flags);
  if (weights) network->take_weights_from(weights);
  return network;
}

double least_parameters(const ModelFlags& flags) {
  // Weights of convolutions per square of the width; a third less than there are.
  constexpr double of_resnet18 = 2000, of_resnet50 = 4000, of_unet = 9;
  constexpr double of_gpt_block = 12;
  const auto real = [](std::int64_t number) { return static_cast<double>(std::max<std::int64_t>(number, 0)); };
  if (flags.model == "tied-lm" || hf_directory(flags)) return 0;
  if (flags.model == "gpt") {
    const GptOptions options = gpt_options(flags);
    return real(options.width) * (of_gpt_block * real(options.layers) * real(options.width) + real(options.context) +
                                  real(options.vocabulary));
  }
  if (is_resnet(flags)) {
    const ResnetOptions options = resnet_options(flags);
    const double squares = options.depth < 50 ? of_resnet18 : of_resnet50;
    return real(options.width) * (squares * real(options.width) + real(options.classes));
  }
  if (flags.model == "vit-b16")
    return of_gpt_block * real(vit_options(flags).layers) * real(vit_options(flags).width) *
           real(vit_options(flags).width);
  if (flags.model == "unet") return of_unet * real(unet_options(flags).width) * real(unet_options(flags).width);
  const Images images = images_of(flags);
  double inputs = real(images.channels * images.side * images.side), count = 0;
  for (const std::int64_t width : parse_widths(hidden_of(flags))) {
    count += inputs * real(width);
    inputs = real(width);
  }
  return count + inputs * real(classes_of(flags));
}

const Loss& loss_of(const ModelFlags& flags) {
  if (flags.model == "gpt" || hf_directory(flags)) return next_token_loss;
  return flags.model == "unet" ? squared_error : cross_entropy;
}

Batch random_batch(const ModelFlags& flags, std::int64_t samples, std::uint64_t seed) {
  check_model(flags);
  torch::manual_seed(static_cast<std::int64_t>(seed));
  const auto directory = hf_directory(flags);
  if (flags.model == "gpt" || directory) {
    const std::int64_t vocabulary = directory ? hf::read_config(*directory).vocabulary : flags.vocabulary;
    const torch::Tensor tokens = torch::randint(0, vocabulary, {samples, context_of(flags) + 1}, torch::kInt64);
    const std::int64_t length = tokens.size(1) - 1;
    return {tokens.narrow(1, 0, length).contiguous(), tokens.narrow(1, 1, length).contiguous()};
  }
  if (flags.model == "tied-lm") {
    const std::int64_t vocabulary = TiedLanguageModelOptions().vocabulary;
    return {torch::randint(0, vocabulary, {samples, 1}, torch::kInt64),
            torch::randint(0, vocabulary, {samples}, torch::kInt64)};
  }
  const Images images = images_of(flags);
  const torch::Tensor inputs = torch::randn({samples, images.channels, images.side, images.side});
  if (flags.model == "unet") return {inputs, inputs};
  return {inputs, torch::randint(0, classes_of(flags), {samples}, torch::kInt64)};
}

std::string describe(const ModelFlags& flags) {
  if (is_resnet(flags)) {
    const ResnetOptions options = resnet_options(flags);
    return say(flags.model, " ", flags.variant.value_or("v1.5"), ", stem ", flags.stem.value_or("imagenet"), ", width ",
               options.width, ", ", options.classes, " classes, on ", dataset_of(flags), " of ", images_of(flags).side,
               " x ", images_of(flags).side);
  }
  if (flags.model == "vit-b16") {
    const VitOptions options = vit_options(flags);
    return say(flags.model, ", ", options.layers, " layers, width ", options.width, ", ", options.heads, " heads, ",
               options.classes, " classes, on ", dataset_of(flags), " of ", options.image_side, " x ",
               options.image_side);
  }
  if (flags.model == "unet") return say("unet of width ", unet_options(flags).width, " on ", dataset_of(flags));
  if (flags.model == "gpt") {
    const GptOptions options = gpt_options(flags);
    return say("gpt of ", options.layers, " layers, width ", options.width, ", ", options.heads, " heads, context ",
               options.context, ", ", options.vocabulary, " characters");
  }
  if (flags.model == "tied-lm") return flags.model;
  if (const auto directory = hf_directory(flags)) {
    const hf::Config config = hf::read_config(*directory);
    const auto lora = lora_of(flags);
    return say(flags.model, ", ", config.architecture, " of ", config.layers, " blocks, width ", config.width, ", ",
               config.vocabulary, " tokens, context ", context_of(flags),
               lora ? ", adapters of " + to_string(*lora) : std::string());
  }
  std::string text = say(flags.model, " ", hidden_of(flags));
  if (flags.dropout) text += say(", dropout ", *flags.dropout);
  return text;
}

nlohmann::ordered_json settings_of(const ModelFlags& flags) {
  nlohmann::ordered_json settings{{"model", flags.model}, {"dataset", dataset_of(flags)}};
  if (flags.model == "tied-lm") return settings;
  if (const auto directory = hf_directory(flags)) {
    settings["model"] = model_name(flags);
    settings["context"] = context_of(flags);
    if (const auto lora = lora_of(flags))
      settings[hf::lora_key] = nlohmann::json::parse(hf::adapter_config_text(*lora, *directory));
    return settings;
  }
  if (flags.model == "gpt") {
    const GptOptions options = gpt_options(flags);
    settings.update({{"layers", options.layers},
                     {"width", options.width},
                     {"heads", options.heads},
                     {"context", options.context},
                     {"dropout", options.dropout},
                     {"head", options.tied_head ? "tied" : "own"},
                     {"vocabulary", options.vocabulary}});
    return settings;
  }
  if (flags.model == "mlp") {
    settings["hidden"] = parse_widths(hidden_of(flags));
    if (flags.dropout) settings["dropout"] = *flags.dropout;
  }
  if (flags.model != "unet") settings["classes"] = classes_of(flags);
  if (is_resnet(flags)) {
    const ResnetOptions options = resnet_options(flags);
    settings["variant"] = flags.variant.value_or("v1.5");
    settings["stem"] = flags.stem.value_or("imagenet");
    settings["width"] = options.width;
    settings["norm_momentum"] = options.norm_momentum;
  }
  if (flags.model == "vit-b16") {
    const VitOptions options = vit_options(flags);
    settings.update({{"width", options.width}, {"layers", options.layers}, {"heads", options.heads}});
  }
  if (flags.model == "unet") settings["width"] = unet_options(flags).width;
  settings["image_size"] = images_of(flags).side;
  return settings;
}

}  // namespace penstock::cli
