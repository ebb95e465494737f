// Makes pipelines, trains, saves and destroys them, one after the other, in one process:
//
//   soak_program FOLDER PIPELINES
//
// After each, writes a line "resident KIB files N threads N shared N": the last are mapped files in shared memory.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "penstock/penstock.h"

namespace {

using namespace penstock;

struct Network : Cell {
  Layer first = add("first", [] { return torch::nn::Linear(8, 16); });
  Layer norm = add("norm", [] { return torch::nn::BatchNorm1d(16); });
  Layer drop = add("drop", [] { return torch::nn::Dropout(0.1); });
  Layer last = add("last", [] { return torch::nn::Linear(16, 4); });
  Value forward(Value x) override { return last(drop(norm(first(x)))); }
};

std::int64_t entries_of(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

std::int64_t resident_kib() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE) / 1024;
}

std::int64_t shared_mappings() {
  std::ifstream file("/proc/self/maps");
  std::int64_t count = 0;
  for (std::string line; std::getline(file, line);) count += line.find("/dev/shm/") != std::string::npos ? 1 : 0;
  return count;
}

/// Another schedule and another number of stages each time.
void run(const std::string& folder, int number) {
  World world({.stages = 1 + number % 3});
  Network network;
  Pipeline pipeline(world, network, cross_entropy,
                    {.micro_batches = 4, .schedule = number % 2 == 0 ? "1f1b" : "gpipe", .seed = 1});
  pipeline.optimize_with(adamw({.learning_rate = 0.01}));
  const auto saver = pipeline.checkpoints({.folder = folder});
  for (int step = 0; step < 3; ++step) {
    pipeline.train_step(torch::randn({8, 8}), torch::randint(0, 4, {8}, torch::kInt64));
    saver->save({});
  }
  saver->finish();
  world.finish();
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  try {
    for (int number = 0; number < std::atoi(arguments[2]); ++number) {
      run(arguments[1], number);
      std::filesystem::remove_all(arguments[1]);
      std::cout << "resident " << resident_kib() << " files " << entries_of("/proc/self/fd") << " threads "
                << entries_of("/proc/self/task") << " shared " << shared_mappings() << std::endl;
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    std::_Exit(1);
  }
}
