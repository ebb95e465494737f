// A U-Net that colours grey images, as a pipeline of three stages. Skip connections go directly from the first stage to
// the last one, and their gradients directly back.
//
//   build/release/examples/unet_skip [STEPS]
//   mpirun -n 3 --oversubscribe build/release/examples/unet_skip [STEPS]
#include <iostream>

#include <penstock/model/stages.h>
#include <penstock/penstock.h>
#include <torch/torch.h>

#include "arguments.h"
#include "data_folder.h"

namespace ps = penstock;

int main(int argc, char** argv) try {
  std::int64_t most_steps = 400;
  Arguments("unet_skip", "Trains a U-Net on three stages to colour grey images.")
      .add("STEPS", most_steps, "training steps")
      .parse(argc, argv);

  ps::Unet net({.in_channels = 1, .out_channels = 3, .width = 8, .levels = 3});
  ps::World world({.stages = 3});
  ps::Pipeline pipeline(world, net, ps::squared_error, {.micro_batches = 4, .partition = "uniform"});
  pipeline.optimize_with(ps::adam({.learning_rate = 2e-3}));

  if (world.is_main())
    for (const ps::StagePart& stage : pipeline.stages().parts)
      for (const ps::Port& port : stage.sends)
        for (const ps::ValueRef& value : port.values)
          std::cout << "stage " << stage.id.value() << " hands '" << pipeline.stages().graph.name_of(value)
                    << "' to stage " << port.peer.value() << "\n";

  ps::Loader pictures(ps::load_cifar10(data_folder("cifar10"), ps::DataPart::train), {.batch_size = 32});
  std::int64_t step = 0;
  while (true)
    for (auto& [colours, labels] : pictures) {
      const ps::StepResult result = pipeline.train_step(colours[0].mean({1}, /*keepdim=*/true), colours);
      // A mean over pixels: about 0.1 for images that stay grey, and about 1 for an untrained network.
      if (step % 50 == 0 && world.should_log())
        std::cout << "step " << step << ", squared error is " << result.loss() << std::endl;
      if (++step > most_steps) return 0;
    }
  return 0;
} catch (const std::exception& error) {
  return failed(error);
}
