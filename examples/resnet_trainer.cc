// A torch module becomes a pipeline by an execution sequence, and a Trainer with hooks trains it on CIFAR-10.
//
//   build/release/examples/resnet_trainer [CHUNKS [EPOCHS [WIDTH [CURVE.json]]]]
//     CHUNKS  stages per rank: 1 (default) runs 1f1b, 2 interleaved
//     EPOCHS  default 12
//     WIDTH   default 16: a ResNet-18 whose first layers have 16 channels; 0: ResNet-50 with 1000 outputs, which takes
//             much longer
//   mpirun -n 2 build/release/examples/resnet_trainer
#include <fstream>
#include <iostream>

#include <penstock/penstock.h>

#include "data_folder.h"
#include "torch_resnet.h"

namespace ps = penstock;

int main(int argc, char** argv) try {
  const int chunks = argc > 1 ? std::stoi(argv[1]) : 1;
  const std::int64_t epochs = argc > 2 ? std::stoll(argv[2]) : 12;
  const std::int64_t width = argc > 3 ? std::stoll(argv[3]) : 16;

  torch::manual_seed(1);
  const auto resnet =
      width > 0 ? std::make_shared<ResnetModule>(18, width, 10) : std::make_shared<ResnetModule>(50, 64, 1000);
  const auto net = ps::layer_list<BlockImpl>(
      resnet, {"conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4", "avgpool",
               {[](const torch::Tensor& x) { return torch::flatten(x, 1); }, "behind"}, "fc"});

  ps::World world(argc, argv, {.stages = 2});
  ps::Pipeline pipeline(world, *net, ps::cross_entropy, {.micro_batches = 4, .chunks = chunks});
  pipeline.optimize_with(ps::adam({.learning_rate = 1e-3}));
  if (world.is_main())
    for (const std::string& line : pipeline.describe_stages()) std::cout << line << "\n";

  const ps::LoaderOptions reading =
      ps::for_this_process(pipeline, {.batch_size = 64, .seed = 1, .transforms = ps::cifar10_augmentation});
  ps::Loader train(ps::load_cifar10(data_folder(), ps::DataPart::train), reading);
  ps::Loader test(ps::load_cifar10(data_folder(), ps::DataPart::test), ps::for_test(reading));

  ps::TrainerOptions options;
  options.epochs = epochs;
  options.learning_rate = ps::LearningRatePlan{.schedule = "linear", .rate = 1e-3, .warmup = 1};
  ps::Trainer trainer(pipeline, options);
  const ps::AccuracyHook& accuracy = trainer.add_hook(std::make_unique<ps::AccuracyHook>());
  const ps::TimerHook& timer = trainer.add_hook(std::make_unique<ps::TimerHook>());
  std::ofstream curve;
  if (world.speaks()) trainer.add_hook(ps::epoch_log_hook(std::cout));
  if (world.is_main()) {
    trainer.add_hook(ps::console_hook(
        std::cout, {.log_every = 0, .is_terminal = ps::stdout_is_terminal(), .tests = false}));  // a progress bar
    if (argc > 4) {
      curve.open(argv[4]);
      trainer.add_hook(ps::json_hook(curve));
    }
  }
  trainer.fit(train, test);
  if (world.is_main()) std::cout << "accuracy at the end: " << accuracy.test().back() << "\n" << timer.table();
} catch (const std::exception& error) {
  return failed(error);
}
