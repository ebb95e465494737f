// A training on [T, n, C] inputs with a [T, T] table that every micro-batch reads whole. Prints the losses, the rows
// that a hook receives on each process, and the outputs of inference, to compare threads with processes.
#include <iostream>

#include <torch/torch.h>

#include "penstock/penstock.h"

namespace {

using namespace penstock;

struct TimeFirst : Cell {
  Layer in = add("in", [] { return torch::nn::Linear(6, 8); });
  Layer low = add("low", [] { return torch::nn::Linear(8, 8); });
  Layer head = add("head", [] { return torch::nn::Linear(8, 5); });
  Values forward_many(Values x) override {
    const Value mixed = apply(
        "mix",
        [](const Tensors& t) {
          return torch::einsum("ts,snc->tnc", {t[1], t[0]});
        },
        Values{relu(in(x[0])), x[1]});
    return {head(apply(
        "pad", [](const Tensors& t) { return t[0] * t[1].t().unsqueeze(2); }, Values{relu(low(mixed)), x[2]}))};
  }
};

class SeenRows : public Hook {
 public:
  WantsOutputs wants_outputs() const override { return WantsOutputs::of_tests; }
  void after_test_batch(const TestStepReport& report, const BatchOutputs& batch) override {
    require<Failure>(
        batch.outputs.at(0).size(1) == batch.rows.size() && batch.targets.at(0).size(1) == batch.rows.size(),
        "a hook received rows that do not exist");
    std::cout << say("saw ", report.step, " ", batch.rows.begin, " ", batch.rows.end, "\n") << std::flush;
  }
};

void run() {
  torch::manual_seed(3);
  constexpr std::int64_t length = 5, samples = 22;
  const torch::Tensor x = torch::randn({length, samples, 6}), table = torch::rand({length, length}).tril(),
                      mask = torch::rand({samples, length}).gt(0.3).to(torch::kFloat32),
                      classes = torch::randint(0, 5, {length, samples});
  World world({.stages = 2});
  TimeFirst network;
  const PipelineOptions options{.inputs = 3,
                                .batch_dims = {.inputs = {1, std::nullopt}, .targets = {1}, .outputs = {1}},
                                .micro_batches = 2,
                                .partition = "uniform"};
  const Loss loss{"classes", [](const torch::Tensor& output, const torch::Tensor& target) {
                    return torch::cross_entropy_loss(output.flatten(0, 1), target.flatten(), {}, at::Reduction::Sum);
                  }};
  Pipeline pipeline(world, network, loss, options);
  pipeline.optimize_with(sgd({.learning_rate = 0.1}));
  const auto source = tensor_source({x, table, mask}, classes, options.batch_dims);
  const LoaderOptions reading = for_this_process(pipeline, {.batch_size = 8, .seed = 1});
  Loader train(source, reading), test(source, for_test(reading));
  TrainerOptions training;
  training.epochs = 2;
  training.metrics = std::vector<Metric>{};
  Trainer trainer(pipeline, training);
  trainer.add_hook(std::make_unique<SeenRows>());
  if (world.is_main()) trainer.add_hook(console_hook(std::cout, {.log_every = 1}));
  trainer.fit(train, test);
  const torch::Tensor output = pipeline.infer({x, table, mask}, {.broadcast = true}).output();
  if (world.is_main())
    std::cout << "output " << output.sizes() << " " << output.abs().sum().item<double>() << std::endl;
}

}  // namespace

int main(int, char**) try {
  run();
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << std::endl;
  std::_Exit(1);
}
