// A pipeline of two stages as processes, with a failure: process_failures_program CASE. See process_failures_test.py.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <thread>

#include "penstock/penstock.h"
#include "tests/base/error_text.h"
#include "tests/runtime/overflowing.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace penstock;
using namespace std::chrono_literals;

/// Two stages; `trouble` occurs in the second one, forward or backward.
struct Network : Cell {
  explicit Network(std::function<void(bool)> trouble = [](bool) {}) : trouble_(std::move(trouble)) {
    a.pipeline_stage = 0;
    b.pipeline_stage = 1;
  }
  Layer a = add("a", [] { return torch::nn::Linear(12, 16); });
  Layer b = add("b", [] { return torch::nn::Linear(16, 4); });

  Value forward(Value x) override {
    const auto meet = [trouble = trouble_](const Tensors& t) {
      trouble(true);
      torch::Tensor result = t[0] * 1;
      if (result.requires_grad()) result.register_hook([trouble](const torch::Tensor&) { trouble(false); });
      return result;
    };
    return apply("trouble", meet, Values{b(a(x))});
  }

 private:
  std::function<void(bool)> trouble_;
};

struct Job {
  explicit Job(
      const WorldOptions& options, std::function<void(bool)> trouble = [](bool) {})
      : world(options),
        network(std::move(trouble)),
        // No update before every rank's backward pass ends, so that after a failure in it all stages are of one step.
        pipeline(std::in_place, world, network, cross_entropy,
                 PipelineOptions{.micro_batches = 4, .schedule = "gpipe", .clip_norm = 1e9}) {
    pipeline->optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  }
  StepResult step(int number) {
    torch::manual_seed(static_cast<std::uint64_t>(number));
    const torch::Tensor inputs = torch::randn({8, 12});
    return pipeline->train_step(inputs, torch::randint(0, 4, {8}, torch::kInt64));
  }
  double sum_of_state() {
    double sum = 0;
    for (const auto& [name, value] : pipeline->state_dict().pairs()) sum += value.abs().sum().item<double>();
    return sum;
  }
  bool is_rank(int rank) const { return world.rank() == rank; }

  World world;
  Network network;
  std::optional<Pipeline> pipeline;
};

const WorldOptions patient{.stages = 2, .deadline = 60s};

/// Trains until the main thread of rank 1 throws between two steps, as a hook may.
void train_until_the_hook_breaks(Job& job) {
  for (int i = 0; i < 1000000; ++i) {
    job.step(i).loss();
    if (i == 5 && job.is_rank(1)) throw std::runtime_error("the hook broke");
  }
}

void hook_case() {
  Job job(patient);
  job.world.run([&] { train_until_the_hook_breaks(job); });
}

/// The same, and only main() catches it.
void unwind_case() {
  Job job(patient);
  train_until_the_hook_breaks(job);
}

/// Returns only by a signal: mpirun ends this process, because another one has failed.
[[noreturn]] void wait_for_the_end() {
  while (true) ::pause();
}

/// The main thread of rank 1 throws and catches, while its world and pipeline live on.
void caught_case() {
  Job job(patient);
  try {
    job.world.run([&] { train_until_the_hook_breaks(job); });
  } catch (const std::exception&) {
    if (job.is_rank(1)) wait_for_the_end();
    throw;
  }
}

/// An exception leaves the scope of rank 1's pipeline, while its world lives on.
void scope_case() {
  World world(patient);
  const bool is_rank_1 = world.rank() == 1;
  Network network;
  try {
    Pipeline pipeline(world, network, cross_entropy, {.micro_batches = 4});
    pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
    for (int i = 0; i < 1000000; ++i) {
      pipeline.train_step(torch::ones({8, 12}), torch::zeros({8}, torch::kInt64)).loss();
      if (i == 5 && is_rank_1) throw std::runtime_error("the hook broke");
    }
  } catch (const std::exception&) {
    if (is_rank_1) wait_for_the_end();
    throw;
  }
}

void exit_case() {
  Job job(patient);
  for (int i = 0; i < 1000000; ++i) {
    job.step(i).loss();
    if (i == 5 && job.is_rank(1)) std::exit(3);
  }
}

/// Rank 1 takes fewer steps, and ends without an error.
void early_case() {
  Job job(patient);
  for (int i = 0; i < (job.is_rank(1) ? 5 : 1000000); ++i) job.step(i).loss();
}

/// The last step fails in forward, and its result is not read; with `finish`, finish() throws the failure.
void last_case(bool finishes, bool forward) {
  bool is_last = false;
  Job job(patient, [&](bool is_forward) {
    if (is_last && is_forward == forward) throw std::runtime_error("the layer broke");
  });
  for (int i = 0; i < 5; ++i) job.step(i).loss();
  is_last = true;
  job.step(5);
  if (finishes) job.world.finish();
}

/// Rank 1 pauses for several deadlines between two steps; rank 0 waits for it.
void pause_case() {
  Job job({.stages = 2, .deadline = 500ms});
  for (int i = 0; i < 4; ++i) {
    job.step(i).loss();
    if (i == 1 && job.is_rank(1)) std::this_thread::sleep_for(2s);
  }
  job.world.finish();
  if (job.world.is_main()) std::cout << "all steps are done" << std::endl;
}

/// A wrong width ends one step; later steps work.
void width_case() {
  Job job(patient);
  job.step(0).loss();
  const double before = job.sum_of_state();
  const std::string failure = test::error_text<StepFailure>([&] {
    job.pipeline->infer(torch::ones({8, 13}), {.broadcast = true}).outputs();
  });
  require<Failure>(failure.find("rank 0 (stage 0) failed at 0F0 of step 1") == 0, "told: ", failure);
  require<Failure>(job.sum_of_state() == before, "the state has changed");
  require<Failure>(job.pipeline->infer(torch::ones({8, 12}), {.broadcast = true}).output().size(1) == 4, "no logits");
  job.step(1).loss();
  job.world.finish();
  if (job.world.is_main()) std::cout << "all goes on" << std::endl;
}

/// A failure in the backward pass ends the world and its state; new worlds can be made, two at a time too.
void worlds_case() {
  {
    bool is_failing = false;
    Job job(patient, [&](bool is_forward) {
      if (is_failing && !is_forward) throw std::runtime_error("the layer broke");
    });
    job.step(0).loss();
    is_failing = true;
    const std::string failure = test::error_text<RankFailure>([&] { job.step(1).wait(); });
    require<Failure>(failure.find("rank 1 (stage 1) failed at 1B0 of step 1: the layer broke") == 0, "told: ", failure);
    is_failing = false;
    const std::string next = test::error_text<RankFailure>([&] { job.step(2).wait(); });
    require<Failure>(next != "[no error]", "the world goes on");
    const std::string state = test::error_text<RankFailure>([&] { job.pipeline->state_dict(); });
    require<Failure>(state.find("no state is left after a failure") == 0, "told: ", state);
  }
  for (int i = 0; i < 2; ++i) {
    Job job(patient);
    job.step(1).loss();
    job.world.finish();
  }
  Job one(patient), other(patient);
  double first = 0, second = 0;
  for (int i = 0; i < 5; ++i) {
    const StepResult result = one.step(i);
    second = other.step(i).loss();
    first = result.loss();
  }
  require<Failure>(first == second, "two worlds at a time: ", first, " and ", second);
  one.world.finish();
  other.world.finish();
  if (one.world.is_main()) std::cout << "four worlds more" << std::endl;
}

/// A step whose loss is not a number is refused, and named as under threads; the step behind it runs.
void invalid_case() {
  const auto train = [&](bool with_invalid) {
    test::OverflowJob job(patient, {.micro_batches = 4});
    std::string text;
    for (const int step : {0, 1, 2, 3}) {
      if (step != 1) {
        job.step(test::Samples(step)).loss();
      } else if (!with_invalid) {
        job.pipeline.skip_step();
      } else {
        text = test::error_text<InvalidLoss>([&] { job.step(test::Samples(step).spoil(15)).loss(); });
      }
    }
    job.world.finish();
    return std::pair(text, job.pipeline.state_dict());
  };
  const auto [no_text, expected] = train(false);
  const auto [text, state] = train(true);
  require<Failure>(test::differing(state, expected).empty(), "these differ: ", test::differing(state, expected));
  require<Failure>(text.find("(stage 0), which stage 1 receives, is not finite") != std::string::npos, "told: ", text);
  World world(patient);
  if (world.is_main()) std::cout << text << std::endl;
}

/// Rank 0 takes no part in the checkpoint that rank 1 begins.
void half_saved_case() {
  const test::TemporaryFolder folder("half_saved");
  Job job({.stages = 2, .deadline = 60s, .stall_limit = 500ms});
  job.step(0).loss();
  const auto saver = job.pipeline->checkpoints({.folder = folder.string()});
  if (job.is_rank(1)) saver->save({});
  while (!job.world.failed()) std::this_thread::yield();
  job.step(1).loss();
}

/// Trains until it is stopped, or a few steps: for the start of a world.
void start_case(int steps) {
  Job job({.stages = 1, .deadline = 2s, .start_deadline = 2s});
  for (int i = 0; i < steps; ++i) job.step(i).loss();
}

int run(const std::string& name) {
  const std::map<std::string, std::function<void()>> cases{{"hook", hook_case},
                                                           {"unwind", unwind_case},
                                                           {"caught", caught_case},
                                                           {"scope", scope_case},
                                                           {"exit", exit_case},
                                                           {"early", early_case},
                                                           {"last", [] { last_case(false, true); }},
                                                           {"last_backward", [] { last_case(false, false); }},
                                                           {"last_finish", [] { last_case(true, true); }},
                                                           {"pause", pause_case},
                                                           {"width", width_case},
                                                           {"worlds", worlds_case},
                                                           {"invalid", invalid_case},
                                                           {"half_saved", half_saved_case},
                                                           {"start", [] { start_case(1000000); }},
                                                           {"paused_start", [] { start_case(3); }}};
  try {
    cases.at(name)();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << say("said: ", error.what(), "\n");  // at once, so that lines of two processes do not mix
    std::_Exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? run(argv[1]) : 2; }
