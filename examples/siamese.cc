// Trains a siamese network to decide whether two images show the same digit. The images of a pair are two inputs, and
// the same layers process both.
//
//   build/release/examples/siamese [EPOCHS]     default 3
//   mpirun -n 2 build/release/examples/siamese
#include <iostream>

#include <penstock/penstock.h>
#include <torch/torch.h>

#include "arguments.h"
#include "data_folder.h"

namespace ps = penstock;
namespace nn = torch::nn;

struct Siamese : ps::Cell {
  ps::Layer in = add("in", [] { return nn::Linear(28 * 28, 128); });
  ps::Layer embed = add("embed", [] { return nn::Linear(128, 32); });
  ps::Layer same = add("same", [] { return nn::Linear(32, 1); });

  ps::Value features(const ps::Value& picture) { return embed(relu(in(flatten(picture)))); }
  ps::Values forward_many(ps::Values pair) override {
    const ps::Value difference = features(pair[0]) - features(pair[1]);  // each layer is called twice
    return {squeeze(same(difference * difference), 1)};
  }
};

/// Random pairs of images, half of them of the same digit, with the targets 1 (same) and 0.
std::shared_ptr<const ps::SampleSource> pairs(ps::DataPart part, std::int64_t count) {
  const ps::ImageSet set = ps::load_mnist(data_folder(), part);
  torch::manual_seed(1);
  const torch::Tensor first = torch::randint(set.size(), {count});
  torch::Tensor second = torch::randint(set.size(), {count});
  const torch::Tensor wanted = torch::rand({count}).lt(0.5);
  for (std::int64_t i = 0; i < count; ++i)
    while (set.labels[first[i]].equal(set.labels[second[i]]) != wanted[i].item<bool>())
      second[i] = torch::randint(set.size(), {}).item<std::int64_t>();
  const torch::Tensor images = set.images.to(torch::kFloat32).div(255);
  return ps::tensor_source({images.index({first}), images.index({second})}, wanted.to(torch::kFloat32));
}

int main(int argc, char** argv) try {
  std::int64_t epochs = 3;
  Arguments("siamese", "Trains a siamese network to decide whether two images show the same digit.")
      .add("EPOCHS", epochs, "over the training set")
      .parse(argc, argv);
  Siamese network;
  ps::World world({.stages = 2});
  const ps::Loss loss{"same_or_not", [](const torch::Tensor& logit, const torch::Tensor& same) {
                        return torch::binary_cross_entropy_with_logits(logit, same, {}, {}, at::Reduction::Sum);
                      }};
  ps::Pipeline pipeline(world, network, loss, {.inputs = 2, .micro_batches = 4});
  pipeline.optimize_with(ps::adam({.learning_rate = 2e-3}));

  const ps::LoaderOptions reading = ps::for_this_process(pipeline, {.batch_size = 64, .seed = 1});
  ps::Loader train(pairs(ps::DataPart::train, 8000), reading);
  ps::Loader test(pairs(ps::DataPart::test, 1000), ps::for_test(reading));
  ps::TrainerOptions options;
  options.epochs = epochs;
  options.metrics = {{{"right", [](const torch::Tensor& logit, const torch::Tensor& same) {
                         return logit.gt(0).eq(same).sum().item<double>();
                       }}}};
  ps::Trainer trainer(pipeline, options);
  if (world.is_main())
    trainer.add_hook(ps::console_hook(std::cout, {.log_every = 50, .is_terminal = ps::stdout_is_terminal()}));
  trainer.fit(train, test);
  return 0;
} catch (const std::exception& error) {
  return failed(error);
}
