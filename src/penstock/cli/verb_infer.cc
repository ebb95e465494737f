#include <fstream>
#include <iostream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/base/log.h"
#include "penstock/base/text.h"
#include "penstock/cli/command_line_check.h"
#include "penstock/cli/config_file.h"
#include "penstock/cli/data_flags.h"
#include "penstock/cli/job.h"
#include "penstock/cli/text_file.h"
#include "penstock/cli/value_flags.h"
#include "penstock/cli/verbs.h"
#include "penstock/cli/weight_file.h"
#include "penstock/train/train.h"
#include "penstock/world/rank_threads.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t most_shown = 1024;  // elements; larger outputs are shown in part
constexpr std::int64_t rows_shown = 4, columns_shown = 8;

struct InferFlags {
  JobFlags job;
  std::string data;
  std::string weights;
  std::int64_t rows = 8;
  bool broadcast = false;
  ReplicaInput replica_input = ReplicaInput::share;
  std::optional<std::int64_t> generate;
  std::vector<std::string> prompts;
  double temperature = 1;
  std::int64_t top_k = 0;
  std::string json;
};

void check(const InferFlags& flags) {
  require<ConfigError>(flags.rows >= 1, "--rows ", flags.rows, ": pass at least 1");
  require<ConfigError>(!flags.generate || flags.job.network.model == "gpt", "--generate is for --model gpt, not for ",
                       flags.job.network.model, ": leave it out");
  require<ConfigError>(flags.generate || flags.prompts.empty(),
                       "--prompt without --generate: pass the number of characters to generate");
  require<ConfigError>(!flags.generate || !flags.prompts.empty(),
                       "--generate without --prompt: pass the text to continue");
  for (const std::string& prompt : flags.prompts)
    require<ConfigError>(!prompt.empty(), "an empty prompt: pass at least one character to start with");
  if (!flags.json.empty()) require_place_for(flags.json);
}

/// The vocabulary of the weights, else of the data set's text, else of printable ASCII.
Vocabulary vocabulary_of(const InferFlags& flags, const std::optional<Vocabulary>& saved) {
  if (saved) return *saved;
  DataFlags data;
  data.directory = flags.data;
  try {
    return load_text(data_directory(data)).vocabulary;
  } catch (const DataError&) {
    if (!flags.data.empty()) throw;
  }
  std::string keyboard = "\n";
  for (char c = ' '; c <= '~'; ++c) keyboard += c;
  return Vocabulary::of(keyboard);
}

/// The elements of a tensor, "[[0.1, 0.2, ...], ...]"; of a large one the first rows and columns.
void show(std::ostream& out, const torch::Tensor& value, bool is_whole) {
  if (value.dim() == 0) {
    const torch::Tensor number = value.to(torch::kFloat64);
    out << (value.is_floating_point() ? say(number.item<double>()) : say(value.item<std::int64_t>()));
    return;
  }
  const std::int64_t size = value.size(0), most = value.dim() == 1 ? columns_shown : rows_shown;
  const std::int64_t shown = is_whole ? size : std::min(size, most);
  out << "[";
  for (std::int64_t i = 0; i < shown; ++i) {
    if (i > 0) out << (value.dim() == 1 ? ", " : ",\n ");
    show(out, value[i], is_whole);
  }
  out << (shown < size ? ", ...]" : "]");
}

std::string name_of(const torch::Tensor& value) { return torch::toString(value.scalar_type()); }

std::string shape_of(const torch::Tensor& value) {
  return "(" + listed(value.sizes()) + (value.dim() == 1 ? ",)" : ")");
}

Json numbers_of(const torch::Tensor& value) {
  if (value.dim() > 0) {
    Json list = Json::array();
    for (std::int64_t i = 0; i < value.size(0); ++i) list.push_back(numbers_of(value[i]));
    return list;
  }
  if (value.is_floating_point()) return value.item<double>();
  return value.item<std::int64_t>();
}

/// The output of one process, with its rank if there are several; written as one block so that lines do not mix.
class Report {
 public:
  explicit Report(const World& world) : rank_(world.rank()), is_one_of_many_(!ranks_of(world).is_alone()) {}

  std::ostream& line() { return text_ << (is_one_of_many_ ? say("rank ", rank_, ": ") : std::string()); }
  std::ostream& text() { return text_; }
  Json json{};

  /// JSON goes to a file of this process's own: FILE for the main one, FILE.rankN for the others.
  void give(const InferFlags& flags, bool is_main) {
    Json all{{"rank", rank_}};
    all.update(json);
    // A model of bytes may generate invalid UTF-8.
    const std::string line = json_text(all) + "\n";
    if (flags.json == "-") {
      std::cout << line << std::flush;
      std::cerr << text_.str() << std::flush;
      return;
    }
    std::cout << text_.str() << std::flush;
    if (!flags.json.empty()) write_text(is_main ? flags.json : say(flags.json, ".rank", rank_), line);
  }

 private:
  int rank_;
  bool is_one_of_many_;
  std::ostringstream text_;
};

Batch random_rows(const InferFlags& flags) {
  return random_batch(flags.job.network, flags.rows, flags.job.pipeline.seed);
}

void infer_batch(Pipeline& pipeline, const InferFlags& flags, Report& report) {
  const InferResult result =
      pipeline.infer(random_rows(flags).inputs, {.broadcast = flags.broadcast, .replicas = flags.replica_input});
  result.wait();
  report.json["outputs"] = nullptr;
  if (!result.has_outputs()) {
    report.line() << "not on this rank (--broadcast sends it to every rank)\n";
    return;
  }
  report.json["outputs"] = Json::array();
  for (const torch::Tensor& output : result.outputs()) {
    const torch::Tensor value = output.to(torch::kCPU);
    report.line() << name_of(value) << " " << shape_of(value) << "\n";
    show(report.text(), value, value.numel() <= most_shown);
    report.text() << "\n";
    report.json["outputs"].push_back({{"shape", std::vector<std::int64_t>(value.sizes().begin(), value.sizes().end())},
                                      {"dtype", name_of(value)},
                                      {"values", numbers_of(value)}});
  }
}

/// The prompts as tokens. Called before the ranks start, so that an invalid prompt fails early.
std::vector<Tokens> tokens_of(const InferFlags& flags, const Vocabulary& vocabulary) {
  std::vector<Tokens> prompts;
  for (const std::string& prompt : flags.prompts) prompts.push_back(vocabulary.encode(prompt));
  return prompts;
}

void infer_text(Pipeline& pipeline, const InferFlags& flags, const std::vector<Tokens>& prompts,
                const Vocabulary& vocabulary, Report& report) {
  Generator generator(pipeline, {.tokens = *flags.generate,
                                 .context = gpt_options(flags.job.network).context,
                                 .at_context_end = ContextEnd::restart,
                                 .sampling = {.temperature = flags.temperature, .top_k = flags.top_k},
                                 .seed = flags.job.pipeline.seed});
  const Generated generated = generator.generate(prompts);
  report.json["texts"] = Json::array();
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::string text = vocabulary.decode(generated.sequences[i]);
    report.line() << "prompt " << i << "\n";
    report.text() << text << "\n";
    report.json["texts"].push_back(text);
  }
  report.json.update(
      {{"tokens", generated.tokens}, {"seconds", generated.seconds}, {"tokens_per_s", generated.tokens_per_second()}});
  if (pipeline.world().is_main())
    log(LogLevel::info, say(generated.tokens, " characters in ", generated.seconds,
                            " s: ", generated.tokens_per_second(), " a second"));
}

int infer(InferFlags flags) {
  settle(flags.job);
  SavedWeights weights;
  ModelFlags& network = flags.job.network;
  Vocabulary vocabulary;
  if (!flags.weights.empty()) weights = read_weights(flags.weights, network);
  check(flags);
  if (network.model == "gpt") {
    vocabulary = vocabulary_of(flags, weights.vocabulary);
    network.vocabulary = vocabulary.size();
  }
  const std::vector<Tokens> prompts = tokens_of(flags, vocabulary);
  Job job(flags.job, Use::forward, weights.tensors);
  const auto pipeline = job.make_pipeline({.sample = [&] { return random_rows(flags); }});
  const World& world = job.world();
  if (world.is_main()) log(LogLevel::info, say(describe(network), ": ", world.describe()));

  Report report(world);
  if (flags.generate)
    infer_text(*pipeline, flags, prompts, vocabulary, report);
  else
    infer_batch(*pipeline, flags, report);
  report.give(flags, world.is_main());
  return 0;
}

}  // namespace

void add_infer(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("infer", "run a network forward through the pipeline; continue texts");
  auto flags = std::make_shared<InferFlags>();
  flags->job.add_network_to(*verb);
  verb->add_option("--weights", flags->weights,
                   "a .safetensors file; a file written by train --save-weights also sets the network's flags "
                   "(default: fresh ones)");
  in_theme(*verb, "Data");
  verb->add_option("--data", flags->data, "gpt: the text that defines the vocabulary (default: as for train)")
      ->check(CLI::Validator(is_no_url, ""));
  verb->add_option("--rows,--batch-size", flags->rows, "rows of random input")->capture_default_str();
  flags->job.add_pipeline_to(*verb);
  flags->job.add_tuning_to(*verb);
  in_theme(*verb, "Output");
  verb->add_flag("--broadcast", flags->broadcast, "send the outputs to every rank, not only to the last stage's");
  add_choice(*verb, "--replica-input", flags->replica_input,
             Choices<ReplicaInput>{{"share", ReplicaInput::share}, {"each", ReplicaInput::each}},
             "share: each replica computes its share of the rows; each: each computes all");
  verb->add_option("--generate", flags->generate, "gpt: number of characters to generate after each prompt");
  verb->add_option("--prompt", flags->prompts, "gpt: text to continue; may be given several times")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  verb->add_option("--temperature", flags->temperature, "sampling temperature; 0: always the most likely character")
      ->capture_default_str();
  verb->add_option("--top-k", flags->top_k, "sample among this number of the most likely characters; 0: among all")
      ->capture_default_str();
  verb->add_option("--json", flags->json, "one JSON object, to this file (other processes: FILE.rankN) or - (stdout)");
  verb->footer(
      "Example:\n"
      "  penstock infer --model tied-lm --stages 4 --broadcast\n"
      "  penstock infer --weights shakespeare.safetensors --stages 2 --generate 200 "
      "--prompt ROMEO: --prompt JULIET:");
  add_config_flags(*verb);
  set_work(*verb, exit_code, [flags] { return infer(*flags); });
}

}  // namespace penstock::cli
