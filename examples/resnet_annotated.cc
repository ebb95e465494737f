// ResNet-50 on CIFAR-10, partitioned by annotations: head, layer1 and layer2 on stage 0, the others on stage 1.
//
//   build/release/examples/resnet_annotated             images of 224 x 224, 10 epochs: hours on a small machine
//   build/release/examples/resnet_annotated 32 5        images as they are, 5 steps: seconds
//   build/release/examples/resnet_annotated 32 250 .001 with another learning rate than the tutorial's .01
//   mpirun -n 2 build/release/examples/resnet_annotated 32 5
#include <iostream>

#include <penstock/penstock.h>
#include <torch/torch.h>

#include "arguments.h"
#include "data_folder.h"

namespace ps = penstock;

constexpr const char* hot =
    "; for images of this size that is high: the loss rises before it falls, in a plain PyTorch loop as well (try .001 "
    "as the third argument)";

int main(int argc, char** argv) try {
  std::int64_t image_size = 224, steps = 0;
  double learning_rate = 0.01;
  Arguments("resnet_annotated", "ResNet-50 on CIFAR-10, partitioned by stage annotations.")
      .add("IMAGE_SIZE", image_size, "height and width in pixels to which images are resized")
      .add("STEPS", steps, "stop after this number of steps; 0: after 10 epochs", 0)
      .add("RATE", learning_rate, "learning rate")
      .parse(argc, argv);

  // last_norm = 0: blocks start as identity; at 32 x 32 the loss would otherwise rise for many steps.
  ps::Resnet net({.depth = 50, .classes = 10, .variant = ps::ResnetVariant::v1, .last_norm = 0, .norm_momentum = 0.01});
  net.head.pipeline_stage = net.layer1.pipeline_stage = net.layer2.pipeline_stage = 0;
  net.layer3.pipeline_stage = net.layer4.pipeline_stage = net.fc.pipeline_stage = 1;

  ps::World world({.stages = 2});
  // The loss of a batch is the sum over its 2 micro-batches of their means: 2 ln 10 = 4.6 at first.
  ps::Pipeline pipeline(world, net, ps::cross_entropy,
                        {.micro_batches = 2, .loss_reduction = {.reduction = ps::Reduction::sum}});
  pipeline.optimize_with(ps::sgd({.learning_rate = learning_rate, .momentum = 0.9}));

  ps::ImageTransforms transforms = ps::cifar10_augmentation;  // pad 4, crop 32, flip; then resized
  transforms.resize = image_size;
  ps::LoaderOptions reading{.batch_size = 32, .drop_last = true, .transforms = transforms};
  ps::Loader train(ps::load_cifar10(data_folder("cifar10"), ps::DataPart::train),
                   ps::for_this_process(pipeline, reading));

  if (world.is_main())
    std::cerr << "learning rate " << learning_rate << " on the sum over 2 micro-batches: " << 2 * learning_rate
              << " on the mean of a batch" << (image_size < 64 && 2 * learning_rate > 0.01 ? hot : "") << std::endl;

  ps::TrainerOptions options;
  options.epochs = 10;
  if (steps > 0) options.max_steps = steps;
  ps::Trainer trainer(pipeline, options);
  if (world.speaks()) trainer.add_hook(ps::loss_monitor_hook(std::cout));
  if (world.is_main())
    trainer.add_hook(ps::console_hook(std::cout, {.log_every = 0, .is_terminal = ps::stdout_is_terminal()}));
  trainer.fit(train);
  return 0;
} catch (const std::exception& error) {
  return failed(error);
}
