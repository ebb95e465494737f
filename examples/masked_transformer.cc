// Trains a transformer to classify token sequences of different lengths; tokens and a padding mask are two inputs.
//   build/release/examples/masked_transformer [EPOCHS]     default 4
//   mpirun -n 2 build/release/examples/masked_transformer
// A token has one of four kinds, its number modulo 4; the target is the most frequent kind among the unmasked tokens.
#include <iostream>

#include <penstock/penstock.h>
#include <torch/torch.h>

#include "arguments.h"
#include "data_folder.h"

namespace ps = penstock;
namespace nn = torch::nn;
constexpr std::int64_t vocabulary = 64, length = 24, width = 32, heads = 4, kinds = 4;

struct Block : nn::Module {
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask) {
    const auto p = qkv(norm1(x)).view({x.size(0), x.size(1), 3, heads, -1}).permute({2, 0, 3, 1, 4}).unbind(0);
    const auto seen = at::scaled_dot_product_attention(p[0], p[1], p[2], mask.view({-1, 1, 1, length}));
    const torch::Tensor y = x + out(seen.transpose(1, 2).flatten(2));
    return y + down(torch::gelu(up(norm2(y))));
  }
  nn::LayerNorm norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})));
  nn::LayerNorm norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})));
  nn::Linear qkv = register_module("qkv", nn::Linear(width, 3 * width));
  nn::Linear out = register_module("out", nn::Linear(width, width));
  nn::Linear up = register_module("up", nn::Linear(width, 4 * width));
  nn::Linear down = register_module("down", nn::Linear(4 * width, width));
};

struct Classifier : ps::Cell {
  ps::Layer embed = add("embed", [] { return nn::Embedding(vocabulary, width); });
  ps::Layer block1 = add("block1", [] { return std::make_shared<Block>(); });
  ps::Layer block2 = add("block2", [] { return std::make_shared<Block>(); });
  ps::Layer head = add("head", [] { return nn::Linear(width, kinds); });
  ps::Values forward_many(ps::Values inputs) override {
    const ps::Value mask = inputs[1];  // is sent to every stage that uses it
    const ps::Value features = block2.call({block1.call({embed(inputs[0]), mask})[0], mask})[0];
    return {head(ps::apply(
        "mean", [](const ps::Tensors& t) { return (t[0] * t[1].unsqueeze(2)).sum(1) / t[1].sum(1, /*keepdim=*/true); },
        {features, mask}))};
  }
};

std::shared_ptr<const ps::SampleSource> sequences(std::int64_t count, std::uint64_t seed) {
  torch::manual_seed(seed);
  const torch::Tensor kind = torch::randint(kinds, {count}), any = torch::randint(vocabulary, {count, length});
  const torch::Tensor of_kind = any.div(kinds, "floor") * kinds + kind.unsqueeze(1);
  const torch::Tensor mask = torch::arange(length).lt(torch::randint(8, length + 1, {count, 1}));
  return ps::tensor_source({torch::where(mask.logical_and(torch::rand({count, length}).lt(0.5)), of_kind, any), mask},
                           kind);
}

/// AdamW with weight decay `decay`.
auto adamw(double decay) {
  return [decay](const std::vector<torch::Tensor>& parameters) {
    return torch::optim::AdamW(parameters, torch::optim::AdamWOptions(3e-3).weight_decay(decay));
  };
}

int main(int argc, char** argv) try {
  ps::TrainerOptions options{.epochs = 4};
  Arguments("masked_transformer", "Trains with masks.").add("EPOCHS", options.epochs, "passes").parse(argc, argv);
  Classifier network;
  ps::World world({.stages = 2});
  ps::Pipeline pipeline(world, network, ps::cross_entropy, {.inputs = 2, .micro_batches = 4, .clip_norm = 1.0});
  pipeline.optimize_with(
      ps::ParameterGroups(adamw(0.1)).add(ps::no_decay, adamw(0)));  // neither biases nor norms decay
  const ps::LoaderOptions reading = ps::for_this_process(pipeline, {.batch_size = 64, .seed = 1});
  ps::Loader train(sequences(4096, 1), reading), test(sequences(1000, 2), ps::for_test(reading));
  options.learning_rate = ps::LearningRatePlan{.schedule = "cosine", .rate = 3e-3, .warmup = 20, .by_epoch = false};
  ps::Trainer trainer(pipeline, options);
  if (world.is_main())
    trainer.add_hook(ps::console_hook(std::cout, {.log_every = 32, .is_terminal = ps::stdout_is_terminal()}));
  trainer.fit(train, test);
  return 0;
} catch (const std::exception& error) {
  return failed(error);
}
