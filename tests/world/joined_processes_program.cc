// Worlds of processes that the program has joined itself: four processes are two pairs, each of which trains a pipeline
// of its own, while all four exchange messages of the program's; then all four are one world.
//
//   joined_processes_program store [missing]      under torchrun's variables; needs LibTorch with Gloo
//   joined_processes_program mpi [missing]        under mpirun; where this build has MPI
//
// missing: one process of each pair does not make a second world.
#include <cstdlib>
#include <iostream>
#include <string>

#include <torch/torch.h>

#include "penstock/penstock.h"
#include "penstock/transport/transport.h"
#include "tests/world/joined_pairs.h"

namespace {

using namespace penstock;

/// The loss of each of three steps; pairs differ by their schedule and by the seed of their data.
std::vector<double> train(World& world, int pair) {
  Mlp network(MlpOptions{.inputs = 6, .hidden = {8, 8}, .classes = 3});
  PipelineOptions settings{.micro_batches = 3, .schedule = pair == 0 ? "1f1b" : "zb-h1"};
  Pipeline pipeline(world, network, cross_entropy, settings);
  pipeline.optimize_with(sgd({.learning_rate = 0.1}));
  torch::manual_seed(pair);
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor inputs = torch::randn({12, 6}), classes = torch::randint(0, 3, {12});
    losses.push_back(pipeline.train_step(inputs, classes).loss());
  }
  world.finish();
  return losses;
}

std::vector<double> train_as_threads(int stages, int pair) {
  World world(open_threads(stages, {}), {.stages = stages});
  return train(world, pair);
}

std::string refusal_of(const WorldOptions& options) {
  try {
    World world(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "a world";
}

void require_losses(const test::JoinedPairs& pairs, const WorldOptions& options, int pair,
                    const std::vector<double>& wanted) {
  World world(options);
  const int rank = world.size() == 2 ? pairs.rank() / 2 : pairs.rank();
  require<Failure>(world.rank() == rank, "rank ", rank, " of ", world.size(), " has world rank ", world.rank());
  require<Failure>(train(world, pair) == wanted, "other losses than those of threads: ", world.describe());
}

void run(const test::JoinedPairs& pairs, bool is_missing) {
  const auto own_pair = pairs.own_pair();
  const int pair = pairs.rank() % 2;
  const auto wanted = train_as_threads(2, pair);
  require_losses(pairs, {.stages = 2, .processes = own_pair}, pair, wanted);
  if (is_missing && pairs.rank() >= 2) return;
  const std::chrono::milliseconds start_deadline(is_missing ? 500 : 60'000);
  require_losses(pairs, {.stages = 2, .processes = own_pair, .start_deadline = start_deadline}, pair, wanted);
  require<Failure>(pairs.sum_of_ranks() == 6, "the program's own messages do not arrive");

  const std::string too_few = refusal_of({.stages = 3, .processes = own_pair});
  require<Failure>(too_few == "2 processes do not divide into 3 pipeline ranks: join a multiple of 3", too_few);
  const std::string other = refusal_of({.stages = 2, .transport = TransportKind::threads, .processes = own_pair});
  require<Failure>(other.find("but another transport is asked for") != std::string::npos, other);

  const auto all = pairs.all();
  require<Failure>(all->size() == 4, "4 processes are ", all->size());
  require_losses(pairs, {.stages = 4, .processes = all}, 0, train_as_threads(4, 0));
}

}  // namespace

int main(int count, char** arguments) {
  const bool is_missing = count > 2 && std::string(arguments[2]) == "missing";
  try {
    const auto pairs = test::join_pairs(arguments[1]);
    run(*pairs, is_missing);
    pairs->leave();
    if (pairs->rank() == 0) std::cout << "pairs and all: 0 bits differ" << std::endl;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    std::_Exit(1);  // at once: the others may still wait
  }
  return 0;
}
