#include <cmath>
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
#include "penstock/cli/verbs.h"
#include "penstock/cli/weight_file.h"
#include "penstock/train/train.h"
#include "penstock/transport/joining/launch_environment.h"

namespace penstock::cli {
namespace {

struct EvaluateFlags {
  JobFlags job;
  DataFlags data;
  std::string weights;
  std::string json;
};

int evaluate(EvaluateFlags flags) {
  settle(flags.job);
  ModelFlags& network = flags.job.network;
  require<ConfigError>(!flags.weights.empty() || hf_directory(network),
                       "--weights is required, but for --model hf:DIR");
  SavedWeights weights;
  if (!flags.weights.empty()) weights = read_weights(flags.weights, network);
  const bool is_first = launched(flags.job).rank == 0;
  if (!flags.json.empty() && is_first) require_place_for(flags.json);
  DataSets sets = read_data(flags.data, network, /*with_test=*/true);
  if (sets.text) {
    require_same_vocabulary(flags.weights, weights, sets.text->vocabulary);
    network.vocabulary = sets.text->vocabulary.size();
  }
  if (sets.tokens) sets.tokens->validation.begin = 0;  // all that the file holds out
  flags.job.pipeline.inputs = flags.data.separate_documents ? 2 : 1;
  Job job(flags.job, Use::forward, weights.tensors);
  const LoaderOptions reading{.batch_size = flags.job.batch_size};
  const auto pipeline = job.make_pipeline({.sample = [&] { return sample_of(sets, flags.data, network, reading); }});
  const World& world = job.world();
  if (world.is_main()) log(LogLevel::info, say(describe(network), ": ", world.describe()));

  Loaders loaders = make_loaders(std::move(sets), flags.data, network, reading, *pipeline);
  Trainer trainer(*pipeline);
  const EvaluationReport report = trainer.evaluate(*loaders.test);
  if (!world.is_main()) return 0;
  nlohmann::ordered_json line{{"test_loss", report.loss}};
  if (report.accuracy) line["test_accuracy"] = *report.accuracy;
  if (hf_directory(network)) line["perplexity"] = std::exp(report.loss);
  line["test_samples"] = report.samples;
  // If JSON goes to standard output, text must not.
  std::ostream& out = flags.json == "-" ? std::cerr : std::cout;
  out << say("test: loss is ", report.loss);
  if (report.accuracy) out << say(", accuracy is ", *report.accuracy);
  if (hf_directory(network)) out << say(", perplexity is ", std::exp(report.loss));
  out << say(", over ", counted(report.samples, "sample"), "\n");
  if (!flags.json.empty()) write_text(flags.json, json_text(line) + "\n");
  return 0;
}

}  // namespace

void add_evaluate(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("evaluate", "loss and accuracy of saved weights on a test set");
  auto flags = std::make_shared<EvaluateFlags>();
  flags->job.add_network_to(*verb);
  verb->add_option(
      "--weights", flags->weights,
      "a .safetensors file; a file written by train --save-weights also sets the network's flags (required, "
      "but for hf:DIR)");
  flags->data.add_to(in_theme(*verb, "Data"));
  verb->add_option("--batch-size", flags->job.batch_size, "samples at a time, over all replicas")
      ->capture_default_str();
  flags->job.add_pipeline_to(*verb);
  flags->job.add_tuning_to(*verb);
  in_theme(*verb, "Output");
  verb->add_option("--json", flags->json, "one JSON object, to this file or - (stdout)");
  verb->footer(
      "Example:\n"
      "  penstock train --data data/mnist --stages 2 --save-weights mnist.safetensors\n"
      "  penstock evaluate --weights mnist.safetensors --data data/mnist --stages 2");
  add_config_flags(*verb);
  set_work(*verb, exit_code, [flags] { return evaluate(*flags); });
}

}  // namespace penstock::cli
