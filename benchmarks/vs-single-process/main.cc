// How much faster is a pipeline of two threads than the loop one writes without it? See README.md beside this.
#include <algorithm>
#include <cstdio>
#include <vector>

#include <penstock/base/clock.h>
#include <penstock/penstock.h>
#include <penstock/pipeline/profiler.h>
#include <penstock/trace/account.h>
#include <torch/torch.h>

namespace {

constexpr std::int64_t batch = 128, micro_batches = 8, warm_up = 5, rounds = 5, steps_per_round = 10;
const std::vector<std::int64_t> widths(8, 1024);

double milliseconds_of(const auto& step) {
  const std::int64_t begin = penstock::now_ns();
  step();
  return penstock::ms_since(begin);
}

/// The loop without Penstock: one thread, gradients accumulated over the micro-batches, torch's own SGD.
struct PlainLoop {
  torch::nn::Sequential network;
  std::unique_ptr<torch::optim::SGD> optimizer;

  PlainLoop() {
    std::int64_t width = 784;
    for (std::int64_t next : widths) {
      network->push_back(torch::nn::Linear(width, next));
      network->push_back(torch::nn::ReLU());
      width = next;
    }
    network->push_back(torch::nn::Linear(width, 10));
    optimizer = std::make_unique<torch::optim::SGD>(network->parameters(), 1e-3);
  }

  void step(const torch::Tensor& inputs, const torch::Tensor& targets) {
    optimizer->zero_grad();
    const auto in = inputs.chunk(micro_batches), out = targets.chunk(micro_batches);
    for (std::size_t i = 0; i < in.size(); ++i)
      (torch::nn::functional::cross_entropy(network->forward(in[i]), out[i]) / static_cast<double>(micro_batches))
          .backward();
    optimizer->step();
  }
};

struct Figures {
  std::vector<double> times;
  double median() {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }
  double least() const { return *std::min_element(times.begin(), times.end()); }
};

}  // namespace

int main() {
  namespace ps = penstock;
  at::get_num_threads();  // the first use in a thread would overwrite the setting
  at::set_num_threads(1);
  torch::manual_seed(1);
  const torch::Tensor inputs = torch::randn({batch, 784}), targets = torch::randint(0, 10, {batch}, torch::kInt64);

  PlainLoop plain;
  Figures plain_figures;
  std::printf(
      "MLP 784 -> 8 x 1024 -> 10, batch %lld, %lld micro-batches, SGD; %lld rounds of %lld steps, interleaved\n\n",
      static_cast<long long>(batch), static_cast<long long>(micro_batches), static_cast<long long>(rounds),
      static_cast<long long>(steps_per_round));

  struct Entry {
    const char* schedule;
    std::unique_ptr<ps::World> world;
    std::unique_ptr<ps::Pipeline> pipeline;
    Figures figures;
  };
  std::vector<Entry> entries;
  for (const char* schedule : {"sequential", "gpipe", "1f1b"}) {
    Entry entry{schedule, std::make_unique<ps::World>(ps::WorldOptions{.stages = 2}), nullptr, {}};
    ps::Mlp network({.inputs = 784, .hidden = widths, .classes = 10});
    entry.pipeline = std::make_unique<ps::Pipeline>(
        *entry.world, network, ps::cross_entropy,
        ps::PipelineOptions{.micro_batches = static_cast<int>(micro_batches), .schedule = schedule});
    entry.pipeline->optimize_with(ps::sgd({.learning_rate = 1e-3}));
    entries.push_back(std::move(entry));
  }

  for (std::int64_t round = -1; round < rounds; ++round) {
    const bool counts = round >= 0;
    const std::int64_t steps = counts ? steps_per_round : warm_up;
    for (std::int64_t i = 0; i < steps; ++i) {
      const double time = milliseconds_of([&] { plain.step(inputs, targets); });
      if (counts) plain_figures.times.push_back(time);
    }
    for (Entry& entry : entries) {
      if (round == 0) ps::Profiler(*entry.pipeline).clear();
      for (std::int64_t i = 0; i < steps; ++i) {
        const double time = milliseconds_of([&] { entry.pipeline->train_step(inputs, targets).wait(); });
        if (counts) entry.figures.times.push_back(time);
      }
    }
  }

  std::printf("%-34s %9s %9s %8s %9s %10s\n", "", "median ms", "min ms", "speed-up", "bubble", "predicted");
  std::printf("%-34s %9.1f %9.1f %8.2f\n", "plain loop, 1 thread", plain_figures.median(), plain_figures.least(), 1.0);
  for (Entry& entry : entries) {
    const ps::Account account = ps::account(ps::Profiler(*entry.pipeline).trace());
    std::printf("%-34s %9.1f %9.1f %8.2f %8.1f%% %9.1f%%\n", ps::say("pipeline of 2 threads, ", entry.schedule).c_str(),
                entry.figures.median(), entry.figures.least(), plain_figures.median() / entry.figures.median(),
                100 * account.bubble_measured, 100 * account.bubble_predicted);
  }
}
