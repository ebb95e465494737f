// Models of Hugging Face directories against what transformers computes: `models_program STAGES,... DIRECTORY...`
// loads each directory, whose expected.safetensors make_tiny_models.py wrote, for each number of stages. Prints a line
// "NAME STAGES logits ERROR losses ERROR" with the largest relative errors, then print_outcome's line.
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

void compare(const std::string& directory, int stages) {
  const auto expected = read_safetensors(directory + "/expected.safetensors").tensors;
  const torch::Tensor inputs = expected["tokens"].narrow(1, 0, 16).contiguous();
  const torch::Tensor targets = expected["tokens"].narrow(1, 1, 16).contiguous();
  const auto model = hf::load(directory);
  World world({.stages = stages});
  Pipeline pipeline(world, *model, next_token_loss, {.micro_batches = 3});
  pipeline.optimize_with(adamw({.learning_rate = 1e-3, .weight_decay = 0.1}));
  const double logits = error_of(pipeline.infer(inputs, {.broadcast = true}).output(), expected["logits"]);
  std::vector<double> losses;
  for (std::int64_t step = 0; step < expected["losses"].size(0); ++step)
    losses.push_back(pipeline.train_step(inputs, targets).loss());
  const auto state = pipeline.state_dict();
  if (!world.should_log()) return;
  const std::string name = std::filesystem::path(directory).filename();
  std::cout << name << " " << stages << " logits " << logits << " losses "
            << error_of(torch::tensor(losses, torch::kFloat64), expected["losses"]) << std::endl;
  test::print_outcome(name, losses, state);
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
