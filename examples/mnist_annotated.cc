// The network of the tutorial with stage annotations, trained on MNIST in a hand-written loop or by a Trainer, which
// print the same lines.
//
//   build/release/examples/mnist_annotated                  two threads, a loop, 10 epochs
//   build/release/examples/mnist_annotated --trainer        the same by a Trainer
//   mpirun -n 2 build/release/examples/mnist_annotated      two processes
//   mpirun -n 8 --oversubscribe build/release/examples/mnist_annotated    4 replicas, 32 samples for each
//   build/release/examples/mnist_annotated --stages 1       one device, same annotations (also with mpirun -n 1);
//                                                           mnist_one_device is the same without a pipeline
//   --steps N stops after N steps, --mean takes the mean over micro-batches instead of the sum, --shuffle shuffles
#include <iomanip>
#include <iostream>

#include <penstock/penstock.h>
#include <torch/torch.h>

#include "arguments.h"
#include "data_folder.h"

namespace ps = penstock;

struct Network : ps::Cell {
  ps::Layer layer1 = add("layer1", [] { return torch::nn::Linear(28 * 28, 512); });
  ps::Layer relu1 = add("relu1", [] { return torch::nn::ReLU(); });
  ps::Layer layer2 = add("layer2", [] { return torch::nn::Linear(512, 512); });
  ps::Layer relu2 = add("relu2", [] { return torch::nn::ReLU(); });
  ps::Layer layer3 = add("layer3", [] { return torch::nn::Linear(512, 10); });

  ps::Value forward(ps::Value x) override {
    x = ps::flatten(x);
    x = relu1(layer1(x));
    x = relu2(layer2(x));
    return layer3(x);
  }
};

constexpr int epochs = 10;

void train_in_a_loop(ps::Pipeline& pipeline, ps::Loader& train, std::int64_t steps) {
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (int step = 0; auto& [images, labels] : train) {
      if (steps-- == 0) return;
      const ps::StepResult result = pipeline.train_step(images, labels);
      if (step % 10 == 0 && pipeline.world().speaks())
        std::cout << "epoch: " << epoch << " step: " << step << ", loss is " << std::setprecision(9) << result.loss()
                  << std::endl;
      ++step;
    }
}

void train_by_a_trainer(ps::Pipeline& pipeline, ps::Loader& train, std::int64_t steps) {
  ps::TrainerOptions options{.epochs = epochs};
  if (steps >= 0) options.max_steps = steps;
  ps::Trainer trainer(pipeline, options);
  if (pipeline.world().speaks())
    trainer.add_hook(ps::console_hook(std::cout, {.log_every = 10, .is_terminal = ps::stdout_is_terminal()}));
  trainer.fit(train);
}

int main(int argc, char** argv) try {
  bool by_loop = false, by_trainer = false, mean = false, shuffle = false;
  std::int64_t steps = -1, stages = 2;
  Arguments("mnist_annotated", "The tutorial's perceptron on MNIST, with stage annotations.")
      .add_flag("--loop", by_loop, "train in a hand-written loop (the default)")
      .add_flag("--trainer", by_trainer, "train by a Trainer: the same losses")
      .add("--steps", steps, "stop after this number of steps (default: after 10 epochs)", 0)
      .add("--stages", stages, "ranks of the pipeline: 1 for one device (default 2)", 1)
      .add_flag("--mean", mean, "take the mean over micro-batches instead of the sum")
      .add_flag("--shuffle", shuffle, "shuffle the samples")
      .parse(argc, argv);

  Network net;
  net.layer1.pipeline_stage = 0;
  net.relu1.pipeline_stage = 0;
  net.layer2.pipeline_stage = 0;
  net.relu2.pipeline_stage = 1;
  net.layer3.pipeline_stage = 1;

  ps::World world({.stages = static_cast<int>(stages)});  // replicas: processes / stages
  const ps::Reduction reduction = mean ? ps::Reduction::mean : ps::Reduction::sum;
  ps::Pipeline pipeline(world, net, ps::cross_entropy,
                        {.micro_batches = 4, .loss_reduction = {.reduction = reduction}, .seed = 1});
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 1e-2); });

  const std::int64_t batch_size = 32 * world.replicas();
  ps::Loader train(ps::load_mnist(data_folder(), ps::DataPart::train),
                   ps::for_this_process(pipeline, {.batch_size = batch_size, .shuffle = shuffle, .seed = 1}));
  if (world.is_main())
    std::cerr << world.describe() << "; batch 32 per replica, " << batch_size << " in all, "
              << train.batches_per_epoch() << " steps per epoch\n";

  (by_trainer ? train_by_a_trainer : train_in_a_loop)(pipeline, train, steps);
  return 0;
} catch (const std::exception& error) {
  return failed(error);
}
