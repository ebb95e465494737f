// What does a pipeline of one rank cost beside the loop that one writes for one device? See README.md beside this.
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <ATen/autocast_mode.h>

#include <penstock/base/clock.h>
#include <penstock/base/error.h>
#include <penstock/penstock.h>
#include <torch/torch.h>

namespace {

namespace ps = penstock;

struct Flags {
  std::string device = "cpu", precision = "fp32";
  ps::GptOptions gpt{.context = 64, .width = 128, .layers = 4, .heads = 4, .dropout = 0, .tied_head = false};
  std::int64_t batch_size = 32, micro_batches = 4;
  int rounds = 5, steps = 5;
  double learning_rate = 1e-5;
  std::optional<double> at_most;  // the ratio
};

struct Batch {
  torch::Tensor tokens, next;
};

/// The loop without Penstock: micro-batches one after the other, autocast around the forward pass, torch's AdamW.
class PlainLoop {
 public:
  explicit PlainLoop(const Flags& flags) : flags_(flags), device_(flags.device), network_(flags.gpt) {
    for (const auto& [name, module] : network_.named_modules()) module->to(device_);
    optimizer_ = std::make_unique<torch::optim::AdamW>(network_.parameters(), flags.learning_rate);
  }

  double step(const Batch& batch) {
    optimizer_->zero_grad();
    torch::Tensor sum = torch::zeros({}, device_);
    const auto tokens = batch.tokens.chunk(flags_.micro_batches), next = batch.next.chunk(flags_.micro_batches);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const torch::Tensor loss = loss_of(tokens[i], next[i]) / static_cast<double>(batch.next.numel());
      loss.backward();
      sum += loss.detach();
    }
    optimizer_->step();
    return sum.item<double>();
  }

 private:
  torch::Tensor loss_of(const torch::Tensor& tokens, const torch::Tensor& next) {
    const bool casts = flags_.precision == "bf16";
    at::autocast::set_autocast_enabled(device_.type(), casts);
    at::autocast::set_autocast_dtype(device_.type(), torch::kBFloat16);
    const torch::Tensor logits = network_(ps::Value(tokens.to(device_))).tensor();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_.type(), false);
    return ps::next_token_loss({logits.to(torch::kFloat32)}, next.to(device_));
  }

  const Flags& flags_;
  const torch::Device device_;
  ps::Gpt network_;
  std::unique_ptr<torch::optim::AdamW> optimizer_;
};

void compare(const Flags& flags) {
  at::get_num_threads();  // the first use in a thread would overwrite the setting
  at::set_num_threads(1);
  torch::manual_seed(1);
  const torch::Tensor text =
      torch::randint(0, flags.gpt.vocabulary, {flags.batch_size, flags.gpt.context + 1}, torch::kInt64);
  const Batch batch{text.narrow(1, 0, flags.gpt.context).contiguous(),
                    text.narrow(1, 1, flags.gpt.context).contiguous()};

  PlainLoop plain(flags);
  ps::World world({.stages = 1});
  ps::Gpt network(flags.gpt);
  ps::Pipeline pipeline(world, network, ps::next_token_loss,
                        {.micro_batches = static_cast<int>(flags.micro_batches),
                         .device = flags.device,
                         .precision = flags.precision == "bf16" ? ps::Precision::bf16 : ps::Precision::fp32});
  pipeline.optimize_with(
      [rate = flags.learning_rate](auto parameters) { return torch::optim::AdamW(parameters, rate); });

  std::vector<double> plain_ms, pipeline_ms, ratios;
  double plain_loss = 0, pipeline_loss = 0;
  const auto timed = [&](auto& times, const auto& step) {
    std::vector<double> round;
    for (int i = 0; i < flags.steps; ++i) {
      const std::int64_t begin = ps::now_ns();
      step();
      round.push_back(ps::ms_since(begin));
    }
    times.push_back(ps::median(round));
  };
  for (int round = -1; round < flags.rounds; ++round) {  // the first warms up
    timed(plain_ms, [&] { plain_loss = plain.step(batch); });
    timed(pipeline_ms, [&] { pipeline_loss = pipeline.train_step(batch.tokens, batch.next).loss(); });
    if (round < 0) {
      plain_ms.clear();
      pipeline_ms.clear();
    } else {
      ratios.push_back(pipeline_ms.back() / plain_ms.back());
    }
  }
  std::printf("GPT of %lld layers, width %lld, context %lld, batch %lld, m = %lld, %s, AdamW, on %s\n",
              static_cast<long long>(flags.gpt.layers), static_cast<long long>(flags.gpt.width),
              static_cast<long long>(flags.gpt.context), static_cast<long long>(flags.batch_size),
              static_cast<long long>(flags.micro_batches), flags.precision.c_str(), flags.device.c_str());
  std::printf("plain loop          %9.2f ms, loss %.5f\n", ps::median(plain_ms), plain_loss);
  std::printf("pipeline of 1 rank  %9.2f ms, loss %.5f\n", ps::median(pipeline_ms), pipeline_loss);
  std::printf("pipeline / plain loop: %.3f (median of %d rounds)\n", ps::median(ratios), flags.rounds);
  ps::require<ps::Failure>(!flags.at_most || ps::median(ratios) <= *flags.at_most, "the ratio is above ",
                           flags.at_most.value_or(0));
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("A pipeline of one rank beside a plain loop.");
  Flags flags;
  app.add_option("--device", flags.device, "cpu, cuda:0, ...")->capture_default_str();
  app.add_option("--precision", flags.precision)->check(CLI::IsMember({"fp32", "bf16"}))->capture_default_str();
  app.add_option("--layers", flags.gpt.layers)->capture_default_str();
  app.add_option("--width", flags.gpt.width)->capture_default_str();
  app.add_option("--heads", flags.gpt.heads)->capture_default_str();
  app.add_option("--context", flags.gpt.context)->capture_default_str();
  app.add_option("--batch-size", flags.batch_size)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--micro-batches", flags.micro_batches, "a divisor of the batch size")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--rounds", flags.rounds)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--steps", flags.steps, "of each kind in a round")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--at-most", flags.at_most, "fail where the ratio is larger");
  CLI11_PARSE(app, argc, argv);
  compare(flags);
} catch (const std::exception& error) {
  std::fprintf(stderr, "one-rank: %s\n", error.what());
  return 1;
}
