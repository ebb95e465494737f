// A training in which one rank fails at one place:
//
//   failing_rank_program FAILURE RANK PLACE STAGES SECONDS
//
// FAILURE is kill, segv, exit, throw, stop (SIGSTOP), loop, or none. PLACE counts the calls of the rank's layer, of its
// backward pass, and of its optimiser. SECONDS are the deadline; for loop, the stall limit. Before it fails, the
// program writes "fails at NANOSECONDS" of the steady clock; otherwise "trained: LOSS, PLACES places".
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <stdexcept>
#include <string>

#include "penstock/base/clock.h"
#include "penstock/penstock.h"

namespace {

using namespace penstock;

constexpr int steps = 24;

struct Trouble {
  std::string failure;
  int rank = 0;
  int place = 0;

  /// Called at every place of `at_rank`.
  void meet(int at_rank) {
    if (at_rank != rank || ++places != place || failure == "none") return;
    const std::string line = say("fails at ", now_ns(), "\n");
    if (::write(STDERR_FILENO, line.data(), line.size()) < 0) std::abort();
    if (failure == "kill") ::raise(SIGKILL);
    if (failure == "segv") *static_cast<volatile int*>(nullptr) = 1;
    if (failure == "exit") std::exit(3);
    if (failure == "throw") throw std::runtime_error("the layer broke");
    if (failure == "stop") ::kill(::getpid(), SIGSTOP);
    while (failure == "loop") ++spins;
  }

  std::atomic<int> places{0};
  std::atomic<std::uint64_t> spins{0};
};

constexpr int width_of(int stage) { return 8 + stage; }

/// One linear layer per stage, of which each is wider than the one before.
struct Network : Cell {
  Network(Trouble& trouble, int stages) {
    for (int stage = 0; stage < stages; ++stage) {
      layers_.push_back(
          add(say("layer", stage), [stage] { return torch::nn::Linear(width_of(stage), width_of(stage + 1)); }));
      layers_.back().pipeline_stage = stage;
      calls_.push_back([&trouble, stage](const Tensors& inputs) {
        trouble.meet(stage);
        const torch::Tensor result = inputs[0] * 1;
        if (result.requires_grad())
          result.register_hook([&trouble, stage](const torch::Tensor&) { trouble.meet(stage); });
        return result;
      });
    }
  }
  Value forward(Value x) override {
    for (std::size_t stage = 0; stage < layers_.size(); ++stage)
      x = apply(say("call", stage), calls_[stage], Values{layers_[stage](x)});
    return x;
  }

 private:
  std::vector<Layer> layers_;
  std::vector<std::function<torch::Tensor(const Tensors&)>> calls_;
};

/// SGD that may fail when it begins.
class Updates : public torch::optim::SGD {
 public:
  Updates(const std::vector<torch::Tensor>& parameters, std::function<void()> begins)
      : SGD(parameters, 0.1), begins_(std::move(begins)) {}
  torch::Tensor step(LossClosure closure = nullptr) override {
    begins_();
    return SGD::step(closure);
  }

 private:
  std::function<void()> begins_;
};

void train(Trouble& trouble, int stages, double seconds) {
  WorldOptions options{.stages = stages};
  const std::chrono::milliseconds limit(static_cast<std::int64_t>(seconds * 1000));
  options.deadline = limit;
  if (trouble.failure == "loop") options.stall_limit = limit;
  World world(options);
  Network network(trouble, stages);
  Pipeline pipeline(world, network, cross_entropy, {.micro_batches = 4, .seed = 1});
  pipeline.optimize_with([&](const std::vector<torch::Tensor>& parameters) {
    const int stage = static_cast<int>(parameters.front().size(1)) - width_of(0);
    return std::make_shared<Updates>(parameters, [&trouble, stage] { trouble.meet(stage); });
  });
  torch::manual_seed(1);
  double loss = 0;
  for (int step = 0; step < steps; ++step)
    loss = pipeline.train_step(torch::randn({8, 8}), torch::randint(0, 8, {8}, torch::kInt64)).loss();
  world.finish();
  if (world.is_main())
    std::cout << "trained: " << std::hexfloat << loss << ", " << trouble.places << " places" << std::endl;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 6) return 2;
  Trouble trouble;
  trouble.failure = arguments[1];
  trouble.rank = std::atoi(arguments[2]);
  trouble.place = std::atoi(arguments[3]);
  try {
    train(trouble, std::atoi(arguments[4]), std::atof(arguments[5]));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << say("said: ", error.what(), "\n") << std::flush;  // in one piece, beside those of other ranks
    std::_Exit(1);                                                 // at once: another rank may still compute
  }
}
