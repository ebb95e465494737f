// Makes a pipeline of a torch module by an execution sequence, and trains it on CIFAR-10 with a Trainer and hooks.
//
//   build/release/examples/resnet_trainer [CHUNKS [EPOCHS [WIDTH [CURVE.json]]]] [--autoaugment]
//     CHUNKS  stages per rank: 1 (default, schedule 1f1b) or 2 (interleaved)
//     EPOCHS  default 12
//     WIDTH   default 16: a ResNet-18 whose first layers have 16 channels; 0: ResNet-50 with 1000 outputs, which takes
//             much longer
//     --autoaugment  augments with crops and AutoAugment, as the tutorial does, instead of crops and flips
//   mpirun -n 2 build/release/examples/resnet_trainer
#include <fstream>
#include <iostream>

#include <penstock/penstock.h>
#include <torch/torch.h>

#include "arguments.h"
#include "data_folder.h"
#include "torch_resnet.h"

namespace ps = penstock;

int main(int argc, char** argv) try {
  int chunks = 1;
  std::int64_t epochs = 12, width = 16;
  std::string curve_file;
  bool autoaugment = false;
  Arguments("resnet_trainer", "A torch module as a pipeline, trained on CIFAR-10 by a Trainer with hooks.")
      .add("CHUNKS", chunks, "stages per rank: 1 (1f1b) or 2 (interleaved)")
      .add("EPOCHS", epochs, "over the training images")
      .add("WIDTH", width, "channels of a ResNet-18's first layers; 0: ResNet-50 with 1000 outputs", 0)
      .add("CURVE.json", curve_file, "a file for losses and accuracies, one JSON object a line")
      .add_flag("--autoaugment", autoaugment, "augment with crops and AutoAugment instead of crops and flips")
      .parse(argc, argv);

  torch::manual_seed(1);
  const auto resnet =
      width > 0 ? std::make_shared<ResnetModule>(18, width, 10) : std::make_shared<ResnetModule>(50, 64, 1000);
  const auto net =
      ps::layer_list<BlockImpl>(resnet, {"conv1",
                                         "bn1",
                                         "relu",
                                         "maxpool",
                                         "layer1",
                                         "layer2",
                                         "layer3",
                                         "layer4",
                                         "avgpool",
                                         {[](const torch::Tensor& x) { return torch::flatten(x, 1); }, "behind"},
                                         "fc"});

  ps::World world({.stages = 2});
  ps::Pipeline pipeline(world, *net, ps::cross_entropy, {.micro_batches = 4, .chunks = chunks});
  pipeline.optimize_with(ps::adam({.learning_rate = 1e-3}));
  if (world.is_main())
    for (const std::string& line : describe_stages(pipeline)) std::cout << line << "\n";

  const ps::ImageTransforms transforms = autoaugment ? ps::cifar10_autoaugment : ps::cifar10_augmentation;
  const ps::LoaderOptions reading =
      ps::for_this_process(pipeline, {.batch_size = 64, .seed = 1, .transforms = transforms});
  ps::Loader train(ps::load_cifar10(data_folder("cifar10"), ps::DataPart::train), reading);
  ps::Loader test(ps::load_cifar10(data_folder("cifar10"), ps::DataPart::test), ps::for_test(reading));

  ps::TrainerOptions options;
  options.epochs = epochs;
  options.learning_rate = ps::LearningRatePlan{.schedule = "linear", .rate = 1e-3, .warmup = 1};
  ps::Trainer trainer(pipeline, options);
  const ps::AccuracyHook& accuracy = trainer.add_hook(std::make_unique<ps::AccuracyHook>());
  const ps::TimerHook& timer = trainer.add_hook(std::make_unique<ps::TimerHook>());
  std::ofstream curve;
  if (world.should_log()) trainer.add_hook(ps::epoch_log_hook(std::cout));
  if (world.is_main()) {
    trainer.add_hook(ps::console_hook(
        std::cout, {.log_every = 0, .is_terminal = ps::stdout_is_terminal(), .tests = false}));  // a progress bar
    if (!curve_file.empty()) {
      curve.open(curve_file);
      trainer.add_hook(ps::json_hook(curve));
    }
  }
  trainer.fit(train, test);
  if (world.is_main()) std::cout << "accuracy at the end: " << accuracy.test().back() << "\n" << timer.table();
  return 0;
} catch (const std::exception& error) {
  return failed(error);
}
