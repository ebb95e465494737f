// A training in which two batches have a NaN. Prints its steps, those that are left out, and the final state's digest,
// to compare threads with processes, and --on-nan rollback with skip.
//
//     skipped_steps_program skip|rollback FOLDER
#include <cmath>
#include <iostream>

#include <torch/torch.h>

#include "penstock/penstock.h"

namespace {

using namespace penstock;

struct Network : Cell {
  Layer a = add("a", [] { return torch::nn::Linear(6, 8); });
  Layer norm = add("norm", [] { return torch::nn::BatchNorm1d(8); });
  Layer drop = add("drop", [] { return torch::nn::Dropout(0.25); });
  Layer b = add("b", [] { return torch::nn::Linear(8, 3); });
  Value forward(Value x) override { return b(drop(relu(norm(a(x))))); }
};

class Notes : public Hook {
 public:
  void after_step(const StepReport& report) override { std::cout << say("step ", report.step, "\n") << std::flush; }
  void after_skipped_step(const SkippedStep& step) override {
    std::cout << say("step ", step.step, " left out, ", step.count, " so far\n") << std::flush;
  }
};

std::uint64_t digest_of(const StateDict& state) {
  std::uint64_t digest = 14695981039346656037U;  // FNV-1a
  for (const auto& [name, value] : state.pairs()) {
    const torch::Tensor bytes = value.contiguous();
    const auto* begin = static_cast<const unsigned char*>(bytes.const_data_ptr());
    for (std::size_t i = 0; i < bytes.nbytes(); ++i) digest = (digest ^ begin[i]) * 1099511628211U;
  }
  return digest;
}

void run(int argc, char** argv) {
  require<ConfigError>(argc == 3, "usage: skipped_steps_program skip|rollback FOLDER");
  torch::manual_seed(5);
  torch::Tensor inputs = torch::randn({120, 6});
  const torch::Tensor targets = torch::randint(0, 3, {120}, torch::kInt64);
  for (const int batch : {1, 7}) inputs[10 * batch + 9][2] = std::nan("");

  World world({.stages = 2});
  Network network;
  Pipeline pipeline(world, network, cross_entropy, {.micro_batches = 2, .partition = "uniform", .seed = 4});
  pipeline.optimize_with([](auto parameters) { return torch::optim::Adam(parameters, 0.01); });
  Loader train(tensor_source(inputs, targets), for_this_process(pipeline, {.batch_size = 10, .shuffle = false}));
  const bool returns = std::string(argv[1]) == "rollback";
  Trainer trainer(pipeline, {.on_nan = returns ? OnNan::rollback : OnNan::skip});
  if (world.is_main()) trainer.add_hook(std::make_unique<Notes>());
  trainer.add_hook(
      std::make_unique<CheckpointHook>(CheckpointOptions{.folder = argv[2], .every = {.seconds = {}, .steps = 3}}));
  trainer.fit(train);
  const auto state = pipeline.state_dict();
  if (world.is_main()) std::cout << "digest " << std::hex << digest_of(state) << std::endl;
  world.finish();
}

}  // namespace

int main(int argc, char** argv) try {
  run(argc, argv);
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << std::endl;
  std::_Exit(1);
}
