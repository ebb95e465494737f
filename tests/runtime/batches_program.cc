// Processes with equal or different batches: `batches_program CASE STAGES REPLICAS [EVERY]`.
//   same       all processes pass the same batches
//   targets    targets are drawn without a common seed
//   inputs     inputs alone are drawn so (rows of a replica that two pipeline ranks read)
//   size       one process has a sample less
//   later      targets differ from step 4 on
//   norm       batch normalisation, two steps, then an evaluation and an inference
//   boundary   with a boundary shape
//   half       in fp16, with a loss scale that is too large at first
// Prints losses from the main process, and errors from every process before any of them ends.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "penstock/penstock.h"

namespace ps = penstock;

namespace {

/// Stage 0 and stage 1 both read the input.
struct Network : ps::Cell {
  ps::Layer first = add("first", [] { return torch::nn::Linear(6, 8); });
  ps::Layer norm = add("norm", [] { return torch::nn::BatchNorm1d(8); });
  ps::Layer direct = add("direct", [] { return torch::nn::Linear(6, 8); });
  ps::Layer last = add("last", [] { return torch::nn::Linear(8, 4); });
  bool has_norm;

  explicit Network(bool with_norm) : has_norm(with_norm) {
    first.pipeline_stage = norm.pipeline_stage = 0;
    direct.pipeline_stage = last.pipeline_stage = 1;
  }
  ps::Value forward(ps::Value x) override {
    const ps::Value y = first(x);
    return last((has_norm ? norm(y) : ps::relu(y)) + direct(x));
  }
};

void print(const char* name, const torch::Tensor& values) {
  const torch::Tensor flat = values.contiguous().flatten();
  std::printf("%s", name);
  for (std::int64_t i = 0; i < flat.numel(); ++i) std::printf(" %a", flat.data_ptr<float>()[i]);
  std::printf("\n");
}

void train(ps::World& world, const std::string& how, int every) {
  const bool is_alone = world.transport() == "threads";
  const int rank = is_alone ? 0 : world.rank();
  Network network(how == "norm");
  ps::PipelineOptions options{.micro_batches = 2, .compare_batches = every, .seed = 3};
  if (how == "boundary") options.boundary_shape = std::vector<std::int64_t>{12 / world.replicas() / 2, 8};
  if (how == "half") options.precision = ps::Precision::fp16;
  options.loss_scaling.initial = 2097152;
  ps::Pipeline pipeline(world, network, ps::cross_entropy, options);
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  const std::int64_t samples = how == "size" && rank == 1 ? 11 : 12;
  for (int step = 0; step < (how == "norm" ? 2 : 6); ++step) {
    torch::manual_seed(how == "inputs" ? 100 * step + rank : step);
    const torch::Tensor inputs = torch::randn({samples, 6});
    torch::manual_seed(how == "targets" || (how == "later" && step >= 3) ? 100 * step + rank : step);
    const torch::Tensor targets = torch::randint(0, 4, {samples}, torch::kInt64);
    const ps::StepResult result = pipeline.train_step(inputs, targets);
    const double loss = result.loss();
    const bool is_skipped = result.update_skipped();
    if (world.is_main()) std::printf("loss %a%s\n", loss, is_skipped ? " skipped" : "");
  }
  if (how == "norm") {
    torch::manual_seed(50);
    const torch::Tensor inputs = torch::randn({12, 6}), targets = torch::arange(12) % 4;
    const ps::InferResult outputs = pipeline.infer(inputs, {.broadcast = true});
    const double loss = pipeline.evaluate(inputs, targets).loss();
    outputs.wait();
    if (world.is_main()) print("outputs", outputs.output());
    if (world.is_main()) std::printf("loss %a\n", loss);
  }
  const auto state = pipeline.state_dict();
  for (const auto& [name, value] : state.pairs())
    if (value.scalar_type() == torch::kFloat32) print(name.c_str(), value);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  int code = 0;
  try {
    ps::World world({.stages = std::atoi(argv[2]), .replicas = std::atoi(argv[3])});
    try {
      train(world, argv[1], argc > 4 ? std::atoi(argv[4]) : 100);
    } catch (const ps::ConfigError& error) {
      code = 2;
      std::cerr << ps::say("ConfigError: ", error.what(), "\n") << std::flush;
    }
    // The world ends when all processes have reached this point and printed their errors.
  } catch (const std::exception& error) {
    std::cerr << "other error: " << error.what() << std::endl;
    return 1;
  }
  return code;
}
