// What do checkpoints cost? See README.md beside this.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include <CLI/CLI.hpp>

#include <penstock/base/clock.h>
#include <penstock/penstock.h>
#include <penstock/world/host_memory.h>
#include <torch/torch.h>

namespace {

namespace ps = penstock;

struct Flags {
  std::string workload = "mlp";
  std::string folder = "build/checkpoint-cost";
  int rounds = 15;
  int steps = 20;  // of each kind in a round
  int every = 10;
  std::string optimizer = "sgd";
};

struct Workload {
  std::string title;
  std::unique_ptr<ps::Cell> network;
  torch::Tensor inputs, targets;
  int micro_batches = 0;
};

Workload workload_called(const std::string& name) {
  torch::manual_seed(0);
  const auto labels = [](std::int64_t samples) { return torch::randint(0, 10, {samples}, torch::kInt64); };
  if (name == "mlp")
    return {"MLP 784, 8 x 1024, 10, batch 128, m = 8",
            std::make_unique<ps::Mlp>(ps::MlpOptions{784, std::vector<std::int64_t>(8, 1024), 10}),
            torch::randn({128, 784}), labels(128), 8};
  ps::ResnetOptions options;
  options.classes = 10;
  return {"ResNet-50, 32 x 32, batch 64, m = 4", std::make_unique<ps::Resnet>(options), torch::randn({64, 3, 32, 32}),
          labels(64), 4};
}

ps::OptimizerFactory optimizer_called(const std::string& name) {
  if (name == "adamw") return ps::adamw({.learning_rate = 1e-5});
  return ps::sgd({.learning_rate = 1e-5, .momentum = name == "momentum" ? 0.9 : 0.0});
}

/// Steps with and without a checkpoint every so often, interleaved.
class Comparison {
 public:
  explicit Comparison(const Flags& flags)
      : flags_(flags),
        workload_(workload_called(flags.workload)),
        pipeline_(world_, *workload_.network, ps::cross_entropy, {.micro_batches = workload_.micro_batches}) {
    std::filesystem::remove_all(flags.folder);
    pipeline_.optimize_with(optimizer_called(flags.optimizer));
    saver_ = pipeline_.checkpoints(
        {.folder = flags.folder, .on_saved = [this](const ps::CommittedCheckpoint&) { saved_ns_ = ps::now_ns(); }});
  }

  void run() {
    steps(flags_.every, false);
    const std::int64_t before = ps::peak_resident_bytes();
    steps(flags_.every, true);
    saver_->finish();
    std::printf("%s, %s, two threads, a checkpoint every %d steps\n", workload_.title.c_str(), flags_.optimizer.c_str(),
                flags_.every);
    std::printf("memory: %.1f MB more with checkpoints\n",
                static_cast<double>(ps::peak_resident_bytes() - before) / 1e6);
    std::vector<double> without, with, ratios;
    for (int round = 0; round < flags_.rounds; ++round) {
      const bool first = round % 2 == 0;
      const double one = steps(flags_.steps, first), other = steps(flags_.steps, !first);
      with.push_back(first ? one : other);
      without.push_back(first ? other : one);
      ratios.push_back(with.back() / without.back());
    }
    std::printf("step: %.2f ms without, %.2f ms with checkpoints, ratio %.3f (median of %d)\n", ps::median(without),
                ps::median(with), ps::median(ratios), flags_.rounds);
    saver_->finish();
    save_and_load();
  }

 private:
  /// The mean time of a step in ms, to the end of the last one.
  double steps(int count, bool saves) {
    saver_->finish();
    const std::int64_t begin = ps::now_ns();
    for (int step = 1; step <= count; ++step) {
      last_.emplace(pipeline_.train_step(workload_.inputs, workload_.targets));
      if (saves && step % flags_.every == 0) saver_->save({});
    }
    last_->wait();
    return ps::ms_since(begin) / count;
  }

  void save_and_load() {
    std::vector<double> saved, loaded;
    double load_memory = 0;
    for (int round = 0; round < flags_.rounds; ++round) {
      pipeline_.train_step(workload_.inputs, workload_.targets).wait();
      std::int64_t begin = ps::now_ns();
      saver_->save({});
      saver_->finish();
      saved.push_back(static_cast<double>(saved_ns_ - begin) / 1e6);
      std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew
      const std::int64_t before = ps::resident_bytes();
      begin = ps::now_ns();
      pipeline_.load(flags_.folder);
      loaded.push_back(ps::ms_since(begin));
      load_memory = std::max(load_memory, static_cast<double>(ps::peak_resident_bytes() - before) / 1e6);
    }
    std::printf("save: %.1f ms until it survives a power failure\n", ps::median(saved));
    std::printf("load: %.1f ms, with all checksums, at most %.1f MB more\n", ps::median(loaded), load_memory);
  }

  const Flags& flags_;
  Workload workload_;
  ps::World world_{{.stages = 2}};
  ps::Pipeline pipeline_;
  std::unique_ptr<ps::CheckpointSaver> saver_;
  std::optional<ps::StepResult> last_;
  std::int64_t saved_ns_ = 0;  // when the last checkpoint survived a power failure
};

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("What checkpoints cost.");
  Flags flags;
  app.add_option("--workload", flags.workload)->check(CLI::IsMember({"mlp", "resnet50"}))->capture_default_str();
  app.add_option("--optimizer", flags.optimizer)
      ->check(CLI::IsMember({"sgd", "momentum", "adamw"}))
      ->capture_default_str();
  app.add_option("--folder", flags.folder, "is removed first")->capture_default_str();
  app.add_option("--rounds", flags.rounds)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--steps", flags.steps)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--every", flags.every)->check(CLI::PositiveNumber)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  Comparison(flags).run();
} catch (const std::exception& error) {
  std::fprintf(stderr, "checkpoint-cost: %s\n", error.what());
  return 1;
}
