// Models of Hugging Face directories against what transformers computes: `models_program STAGES,... DIRECTORY...`
// loads each directory, whose expected.safetensors make_tiny_models.py wrote, for each number of stages. Prints a line
// "NAME STAGES LOGITS LOSSES BF16_LOGITS BF16_LOSSES EQUAL", with the largest relative errors and the number of greedily
// generated tokens that are equal, then print_outcome's line.
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>

#include <torch/torch.h>

#include "penstock/checkpoint/safetensors.h"
#include "penstock/hf/model.h"
#include "penstock/penstock.h"
#include "tests/runtime/outcome_line.h"

namespace {

using namespace penstock;

double error_of(const torch::Tensor& got, const torch::Tensor& expected) {
  return ((got - expected).abs().max() / expected.abs().max()).item<double>();
}

/// Logits, then losses of a training in one precision, with their errors and the state after it.
struct Training {
  Training(Pipeline& pipeline, StateDict& expected, const std::string& prefix) {
    const torch::Tensor inputs = expected["tokens"].narrow(1, 0, 16).contiguous();
    const torch::Tensor targets = expected["tokens"].narrow(1, 1, 16).contiguous();
    pipeline.optimize_with(adamw({.learning_rate = 1e-3, .weight_decay = 0.1}));
    logits = error_of(pipeline.infer(inputs, {.broadcast = true}).output(), expected[prefix + "logits"]);
    const torch::Tensor& expected_losses = expected[prefix + "losses"];
    for (std::int64_t step = 0; step < expected_losses.size(0); ++step)
      losses.push_back(pipeline.train_step(inputs, targets).loss());
    error = error_of(torch::tensor(losses, torch::kFloat64), expected_losses);
    state = pipeline.state_dict();
  }
  double logits = 0, error = 0;
  std::vector<double> losses;
  StateDict state;
};

/// Continues the first `length` columns of `wanted`. Returns how many of the tokens are as in `wanted`.
std::int64_t equal_tokens(Pipeline& pipeline, const torch::Tensor& wanted, std::int64_t length) {
  std::vector<Tokens> prompts;
  for (std::int64_t row = 0; row < wanted.size(0); ++row) {
    const auto* begin = wanted[row].const_data_ptr<std::int64_t>();
    prompts.emplace_back(begin, begin + length);
  }
  Generator generator(pipeline,
                      {.tokens = wanted.size(1) - length, .context = wanted.size(1), .sampling = {.temperature = 0}});
  const Generated generated = generator.generate(prompts);
  std::int64_t equal = 0;
  for (std::int64_t row = 0; row < wanted.size(0); ++row)
    for (std::int64_t at = length; at < wanted.size(1); ++at)
      equal += generated.sequences[static_cast<std::size_t>(row)][static_cast<std::size_t>(at)] ==
               wanted[row][at].item<std::int64_t>();
  return equal;
}

void compare(const std::string& directory, int stages) {
  StateDict expected = read_safetensors(directory + "/expected.safetensors").tensors;
  World world({.stages = stages});
  const auto model = hf::load(directory), bf16_model = hf::load(directory);
  Pipeline pipeline(world, *model, next_token_loss, {.micro_batches = 3});
  const std::int64_t equal = equal_tokens(pipeline, expected["generated"], expected["prompt_length"].item<int>());
  const Training fp32(pipeline, expected, "");
  Pipeline bf16_pipeline(world, *bf16_model, next_token_loss, {.micro_batches = 3, .precision = Precision::bf16});
  const Training bf16(bf16_pipeline, expected, "bf16_");
  if (!world.should_log()) return;
  const std::string name = std::filesystem::path(directory).filename();
  std::cout << say(name, " ", stages, " ", fp32.logits, " ", fp32.error, " ", bf16.logits, " ", bf16.error, " ", equal)
            << std::endl;
  test::print_outcome(name, fp32.losses, fp32.state);
  test::print_outcome(name + " bf16", bf16.losses, bf16.state);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  try {
    std::istringstream all(argv[1]);
    for (std::string stages; std::getline(all, stages, ',');)
      for (int i = 2; i < argc; ++i) compare(argv[i], std::atoi(stages.c_str()));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    std::_Exit(1);
  }
}
