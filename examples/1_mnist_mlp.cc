// A network written as for one device, trained as a pipeline of two stages.
//
//   build/release/examples/1_mnist_mlp                 two threads
//   mpirun -n 2 build/release/examples/1_mnist_mlp     two processes: the same numbers
//   mpirun -n 4 --oversubscribe build/release/examples/1_mnist_mlp    two replicas of the pipeline
#include <cstdlib>
#include <iostream>

#include <penstock/penstock.h>
#include <torch/torch.h>

namespace ps = penstock;

struct Network : ps::Cell {
  ps::Layer layer1 = add("layer1", [] { return torch::nn::Linear(784, 512); });
  ps::Layer relu1 = add("relu1", [] { return torch::nn::ReLU(); });
  ps::Layer layer2 = add("layer2", [] { return torch::nn::Linear(512, 512); });
  ps::Layer relu2 = add("relu2", [] { return torch::nn::ReLU(); });
  ps::Layer layer3 = add("layer3", [] { return torch::nn::Linear(512, 10); });

  ps::Value forward(ps::Value x) override { return layer3(relu2(layer2(relu1(layer1(ps::flatten(x, 1)))))); }
};

int main(int argc, char**) try {
  if (argc > 1) return std::cerr << "usage: 1_mnist_mlp   (it takes no arguments)\n", 2;

  Network net;
  net.layer1.pipeline_stage = net.relu1.pipeline_stage = net.layer2.pipeline_stage = 0;
  net.relu2.pipeline_stage = net.layer3.pipeline_stage = 1;

  ps::World world({.stages = 2});  // threads; under mpirun: one process per rank
  ps::Pipeline pipeline(world, net, ps::cross_entropy, {.micro_batches = 4, .schedule = "1f1b"});
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 1e-2); });

  for (int step = 0; auto& [images, labels] : ps::mnist(ps::find_data("mnist"), {.batch_size = 32})) {
    const auto result = pipeline.train_step(images, labels);  // the loss is known on every rank; asking waits
    if (step % 100 == 0 && world.should_log()) std::cout << "step " << step << ", loss is " << result.loss() << "\n";
    if (++step > 500) break;
  }
  world.finish();  // waits for the last step, and throws what went wrong in it
} catch (const std::exception& error) {
  std::cerr << error.what() << std::endl;
  std::_Exit(1);  // at once: other ranks may still compute
}
