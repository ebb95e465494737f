// Compares schedules with one device, for a perceptron of eight layers of 1024 in two stages. One device is measured
// with the whole batch and with the pipeline's micro-batches, whose gradients it accumulates. The ratio of these two
// rows is the cost of small kernels; the ratio of a schedule and the second row is the gain of overlap.
//
//   build/release/examples/mnist_benchmark [STEPS [FOLDER]]     two threads
//   examples/run_mnist_benchmark.sh                             two processes
//     STEPS   steps to measure for each row, and then to train; default 20
//     FOLDER  folder for pictures of each schedule, predicted and measured; none by default
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <penstock/penstock.h>
#include <penstock/pipeline/profiler.h>
#include <penstock/trace/pictures.h>
#include <torch/torch.h>

#include "arguments.h"
#include "data_folder.h"

namespace ps = penstock;

using Clock = std::chrono::steady_clock;

constexpr int warm_up = 3;

struct Job {
  std::int64_t batch_size = 32;
  int micro_batches = 2;
  int steps = 20;
  std::string folder = {};
};

ps::Mlp network() { return ps::Mlp({.hidden = std::vector<std::int64_t>(8, 1024)}); }

/// Full batches in stored order, pixels between 0 and 1.
ps::Loader images(std::int64_t batch_size) {
  ps::ImageSet set = ps::load_mnist(data_folder(), ps::DataPart::train);
  set.mean = {0};
  set.std = {1};
  return ps::Loader(std::move(set), {.batch_size = batch_size, .shuffle = false, .drop_last = true});
}

/// The median time of a step in seconds, after a few steps of warm-up.
double median_seconds(int steps, const std::function<void()>& step) {
  std::vector<double> seconds;
  for (int i = -warm_up; i < steps; ++i) {
    const auto begin = Clock::now();
    step();
    if (i >= 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + steps / 2, seconds.end());
  return seconds[static_cast<std::size_t>(steps / 2)];
}

/// The network with the same optimiser on one thread, without a pipeline. Gradients are accumulated over the
/// micro-batches.
double one_device(const Job& job, const ps::Batch& batch, int micro_batches) {
  at::get_num_threads();  // initialises LibTorch, which would overwrite the setting later
  at::set_num_threads(1);
  ps::Mlp net = network();
  std::vector<ps::NamedParameter> parameters;
  for (const auto& [name, value] : net.named_parameters()) parameters.push_back({name, value});
  const auto optimizer = ps::adam({.learning_rate = 1e-3})(parameters);
  return median_seconds(job.steps, [&] {
    for (const ps::NamedParameter& parameter : parameters) torch::Tensor(parameter.value).mutable_grad().reset();
    const auto inputs = batch.inputs[0].chunk(micro_batches), targets = batch.targets[0].chunk(micro_batches);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const torch::Tensor outputs = net(ps::Value(inputs[i])).tensor();
      (torch::nn::functional::cross_entropy(outputs, targets[i]) / micro_batches).backward();
    }
    optimizer->step();
  });
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  std::cout << "picture: " << path << "\n";
}

double as_pipeline(ps::World& world, const std::string& schedule, const Job& job, const ps::Batch& batch) {
  ps::Mlp net = network();
  ps::Pipeline pipeline(world, net, ps::cross_entropy,
                        {.micro_batches = job.micro_batches, .schedule = schedule, .partition = "layer5"});
  pipeline.optimize_with(ps::adam({.learning_rate = 1e-3}));
  const double seconds = median_seconds(job.steps, [&] { pipeline.train_step(batch.inputs, batch.targets).wait(); });
  const ps::Trace trace = ps::Profiler(pipeline).trace();
  if (world.is_main() && !job.folder.empty()) {
    const std::string name = job.folder + "/" + schedule + "_" + std::to_string(job.micro_batches);
    write(name + "_planned.svg", ps::schedule_svg(pipeline.schedule(), ps::StageCosts::unit()));
    write(name + "_measured.svg", ps::step_svg(trace));
  }
  return seconds;
}

void compare(ps::World& world, const Job& job) {
  ps::Loader loader = images(job.batch_size);
  const ps::Batch batch = *loader.begin();
  // The other process waits in the constructor of the next pipeline.
  const double whole = world.is_main() ? one_device(job, batch, 1) : 0;
  const double split = world.is_main() ? one_device(job, batch, job.micro_batches) : 0;
  const auto row = [&](const std::string& name, double seconds) {
    if (world.is_main())
      std::printf("%-28s %8.1f ms %9.2f x %12.2f x %10.0f samples/s\n", name.c_str(), seconds * 1e3, whole / seconds,
                  split / seconds, static_cast<double>(job.batch_size) / seconds);
  };
  const std::string micro_batches = std::to_string(job.micro_batches) + " micro-batches";
  if (world.is_main())
    std::printf(
        "\nbatch %lld in %s: a step; how much faster than one device with the whole batch, and with the same "
        "micro-batches; throughput\n",
        static_cast<long long>(job.batch_size), micro_batches.c_str());
  row("one device, whole batch", whole);
  row("one device, " + micro_batches, split);
  for (const char* schedule : {"sequential", "gpipe", "1f1b"}) row(schedule, as_pipeline(world, schedule, job, batch));
  std::fflush(stdout);
}

void train(ps::World& world, int steps) {
  ps::Mlp net = network();
  ps::Pipeline pipeline(world, net, ps::cross_entropy,
                        {.micro_batches = 2, .schedule = "gpipe", .partition = "layer5"});
  pipeline.optimize_with(ps::adam({.learning_rate = 1e-3}));
  ps::Loader loader = images(32);
  auto begin = Clock::now();
  for (int step = 0; auto& [inputs, targets] : loader) {
    if (step > steps) break;
    const double loss = pipeline.train_step(inputs, targets).loss();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (step % 20 == 0 && world.is_main())
      std::printf("Epoch 0 Iteration %d (%.4f sec): Train loss %.2f\n", step, seconds, loss);
    begin = Clock::now();
    ++step;
  }
}

int main(int argc, char** argv) try {
  int steps = 20;
  std::string folder;
  Arguments("mnist_benchmark", "Compares schedules with one device: the gain of overlap and the cost of micro-batches.")
      .add("STEPS", steps, "steps to measure for each row, and then to train")
      .add("FOLDER", folder, "folder for pictures of each schedule, predicted and measured")
      .parse(argc, argv);
  ps::World world({.stages = 2});
  if (world.is_main()) std::cout << world.describe() << std::endl;
  compare(world, {.batch_size = 32, .micro_batches = 2, .steps = steps, .folder = folder});
  compare(world, {.batch_size = 256, .micro_batches = 8, .steps = steps, .folder = folder});
  if (world.is_main()) std::cout << "\n2 stages, gpipe, batch 32 in 2 micro-batches:" << std::endl;
  train(world, steps);
  return 0;
} catch (const std::exception& error) {
  return failed(error);
}
