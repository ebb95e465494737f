// A training that can be interrupted at any time, by Ctrl-C, a power failure or --steps, and goes on where it was: with
// other stages too. Start it again with the same command, or with another number of stages.
//
//   build/release/examples/resumable [--stages 2] [--folder resumable-checkpoints] [--steps 0]
//   mpirun -n 2 build/release/examples/resumable
#include <iostream>

#include <penstock/base/stop_signals.h>
#include <penstock/penstock.h>
#include <torch/torch.h>

#include "arguments.h"
#include "data_folder.h"

namespace ps = penstock;
namespace nn = torch::nn;

struct Network : ps::Cell {
  ps::Layer in = add("in", [] { return nn::Linear(28 * 28, 128); });
  ps::Layer drop = add("drop", [] { return nn::Dropout(0.2); });
  ps::Layer middle = add("middle", [] { return nn::Linear(128, 64); });
  ps::Layer out = add("out", [] { return nn::Linear(64, 10); });
  ps::Value forward(ps::Value x) override { return out(relu(middle(drop(relu(in(flatten(x, 1))))))); }
};

int main(int argc, char** argv) try {
  int stages = 2;
  std::int64_t steps = 0;
  std::string folder = "resumable-checkpoints";
  Arguments("resumable", "Trains on MNIST, and goes on where an earlier run was interrupted.")
      .add("--stages", stages, "pipeline ranks")
      .add("--steps", steps, "interrupt the training after so many steps of this run; 0: do not", 0)
      .add("--folder", folder, "for the checkpoints")
      .parse(argc, argv);
  Network network;
  ps::World world({.stages = stages});
  ps::Pipeline pipeline(world, network, ps::cross_entropy, {.micro_batches = 4});
  pipeline.optimize_with(ps::adamw({.learning_rate = 1e-3}));

  const ps::StopSignals signals;  // from here on Ctrl-C ends the training after its step, with a checkpoint
  std::int64_t done = 0;
  ps::TrainerOptions options{.epochs = 1};
  options.stop_when = [&]() -> std::optional<ps::StopRequest> {
    if (const auto signal = ps::StopSignals::received()) return ps::StopRequest{"a signal", *signal};
    if (steps > 0 && done++ == steps) return ps::StopRequest{"enough steps"};
    return std::nullopt;
  };
  ps::Trainer trainer(pipeline, options);
  trainer.add_hook(
      std::make_unique<ps::CheckpointHook>(ps::CheckpointOptions{.folder = folder, .every = {.steps = 500}}));
  if (world.is_main()) trainer.add_hook(ps::console_hook(std::cout, {.log_every = 250}));
  if (trainer.resume(folder) && world.is_main())
    std::cout << "resumed after " << pipeline.training_steps() << " steps\n";

  const ps::LoaderOptions reading = ps::for_this_process(pipeline, {.batch_size = 32, .seed = 1});
  ps::Loader train(ps::load_mnist(data_folder(), ps::DataPart::train), reading);
  ps::Loader test(ps::load_mnist(data_folder(), ps::DataPart::test), ps::for_test(reading));
  trainer.fit(train, test);
  if (const auto& stopped = trainer.interrupted(); stopped && world.is_main())
    std::cout << "interrupted after " << pipeline.training_steps() << " steps by " << stopped->reason << "\n";
  return 0;
} catch (const std::exception& error) {
  return failed(error);
}
