// Trains a variational autoencoder on digits. It needs no labels: its loss is a function of the outputs alone.
//
//   build/release/examples/vae [EPOCHS]     default 3
//   mpirun -n 2 build/release/examples/vae
//
// The noise is a function of seed, step and sample, so the results do not depend on the number of stages and processes.
#include <iostream>

#include <penstock/penstock.h>
#include <torch/torch.h>

#include "arguments.h"
#include "data_folder.h"

namespace ps = penstock;
namespace nn = torch::nn;

constexpr std::int64_t pixels = 28 * 28, hidden = 128, code = 8;

struct Vae : ps::Cell {
  ps::Layer in = add("in", [] { return nn::Linear(pixels, hidden); });
  ps::Layer mean = add("mean", [] { return nn::Linear(hidden, code); });
  ps::Layer log_variance = add("log_variance", [] { return nn::Linear(hidden, code); });
  ps::Layer open = add("open", [] { return nn::Linear(code, hidden); });
  ps::Layer out = add("out", [] { return nn::Linear(hidden, pixels); });

  /// The image is also an output, for the loss on the last stage.
  ps::Values forward_many(ps::Values inputs) override {
    const ps::Value features = relu(in(inputs[0])), mu = mean(features), log_var = log_variance(features);
    const ps::Value deviation = ps::apply("exp", [](const ps::Tensors& t) { return (0.5 * t[0]).exp(); }, {log_var});
    const ps::Value drawn = mu + deviation * ps::normal_like(mu);
    return {out(relu(open(drawn))), inputs[0], mu, log_var};
  }
};

/// The negative evidence lower bound in nats: reconstruction error plus divergence of the codes from a normal
/// distribution.
torch::Tensor nats(const ps::Tensors& outputs) {
  const auto &logits = outputs[0], &picture = outputs[1], &mean = outputs[2], &log_variance = outputs[3];
  return torch::binary_cross_entropy_with_logits(logits, picture, {}, {}, at::Reduction::Sum) +
         0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum();
}

std::shared_ptr<const ps::SampleSource> pictures(ps::DataPart part) {
  return ps::tensor_source(ps::load_mnist(data_folder(), part).images.flatten(1).to(torch::kFloat32).div(255));
}

int main(int argc, char** argv) try {
  std::int64_t epochs = 3;
  Arguments("vae", "Trains a variational autoencoder on digits, without labels.")
      .add("EPOCHS", epochs, "over the training set")
      .parse(argc, argv);
  Vae network;
  ps::World world({.stages = 2});
  const ps::Loss loss{"nats", nats};  // averaged over samples, because there is no weight function
  ps::Pipeline pipeline(world, network, loss, {.micro_batches = 4, .seed = 1});
  pipeline.optimize_with(ps::adam({.learning_rate = 2e-3}));

  const ps::LoaderOptions reading = ps::for_this_process(pipeline, {.batch_size = 64, .seed = 1});
  ps::Loader train(pictures(ps::DataPart::train), reading);
  ps::Loader test(pictures(ps::DataPart::test), ps::for_test(reading));
  ps::TrainerOptions options;
  options.epochs = epochs;
  ps::Trainer trainer(pipeline, options);
  if (world.is_main())
    trainer.add_hook(ps::console_hook(std::cout, {.log_every = 50, .is_terminal = ps::stdout_is_terminal()}));
  trainer.fit(train, test);
  return 0;
} catch (const std::exception& error) {
  return failed(error);
}
