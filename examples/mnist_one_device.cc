// mnist_annotated on one device: the same network and loop without stages, world and pipeline. The difference between
// the two programs shows what a pipeline needs; the losses are equal up to rounding.
//
//   build/release/examples/mnist_one_device --steps 51
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <string>

#include <penstock/penstock.h>
#include <torch/torch.h>

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
constexpr int micro_batches = 4;

/// Returns the sum of the micro-batches' mean losses and accumulates its gradients.
double forward_backward(Network& net, const torch::Tensor& images, const torch::Tensor& labels) {
  double loss = 0;
  const auto image_parts = images.tensor_split(micro_batches), label_parts = labels.tensor_split(micro_batches);
  for (std::size_t i = 0; i < image_parts.size(); ++i) {
    const torch::Tensor mean = torch::nn::functional::cross_entropy(net(image_parts[i]).tensor(), label_parts[i]);
    mean.backward();
    loss += mean.item<double>();
  }
  return loss;
}

int main(int argc, char** argv) try {
  const bool has_steps = argc == 3 && std::string(argv[1]) == "--steps";
  ps::require<ps::ConfigError>(argc == 1 || has_steps, "usage: mnist_one_device [--steps N]");
  std::int64_t steps = has_steps ? std::stoll(argv[2]) : -1;
  torch::set_num_threads(1);

  Network net;
  torch::optim::SGD optimizer(net.parameters(/*seed=*/1), 1e-2);
  ps::Loader train(ps::load_mnist(data_folder(), ps::DataPart::train), {.batch_size = 32, .shuffle = false, .seed = 1});
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (int step = 0; auto& [images, labels] : train) {
      if (steps-- == 0) return 0;
      optimizer.zero_grad();
      const double loss = forward_backward(net, images, labels);
      optimizer.step();
      if (step % 10 == 0)
        std::cout << "epoch: " << epoch << " step: " << step << ", loss is " << std::setprecision(9) << loss
                  << std::endl;
      ++step;
    }
  return 0;
} catch (const std::exception& error) {
  return failed(error);
}
