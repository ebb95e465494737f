// How accurate are predicted step times, and how good is the choice of auto? See README.md beside this.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <span>

#include <CLI/CLI.hpp>

#include <penstock/autotune/autotune.h>
#include <penstock/autotune/choose.h>
#include <penstock/autotune/profile.h>
#include <penstock/base/clock.h>
#include <penstock/base/error.h>
#include <penstock/base/text.h>
#include <penstock/hf/model.h>
#include <penstock/penstock.h>
#include <torch/torch.h>

#include "terms.h"

namespace {

namespace ps = penstock;

constexpr int ranks = 2;
constexpr double median_bar = 0.03, worst_bar = 0.08, choice_bar = 0.03;

struct Workload {
  std::string title;
  std::function<std::unique_ptr<ps::Cell>()> make;
  ps::Loss loss;
  torch::Tensor inputs, targets;
  int micro_batches = 0;
  double learning_rate = 1e-3;
};

Workload workload_called(const std::string& name) {
  torch::manual_seed(0);
  if (name.starts_with("hf:")) {
    const std::string directory = name.substr(3);
    const torch::Tensor tokens = torch::randint(0, ps::hf::read_config(directory).vocabulary, {4, 129}, torch::kInt64);
    return {name + ", 4 x 128 tokens, m = 4",
            [directory] { return ps::hf::load(directory); },
            ps::next_token_loss,
            tokens.narrow(1, 0, 128).contiguous(),
            tokens.narrow(1, 1, 128).contiguous(),
            4,
            1e-5};
  }
  const auto labels = [](std::int64_t samples) { return torch::randint(0, 10, {samples}, torch::kInt64); };
  if (name == "mlp")
    return {"MLP 784, 8 x 1024, 10, batch 128, m = 8",
            [] {
              return std::make_unique<ps::Mlp>(ps::MlpOptions{784, std::vector<std::int64_t>(8, 1024), 10});
            },
            ps::cross_entropy,
            torch::randn({128, 784}),
            labels(128),
            8,
            1e-3};
  if (name == "resnet50") {
    ps::ResnetOptions options;
    options.classes = 10;
    return {"ResNet-50, 32 x 32, batch 64, m = 4",
            [options] { return std::make_unique<ps::Resnet>(options); },
            ps::cross_entropy,
            torch::randn({64, 3, 32, 32}),
            labels(64),
            4,
            1e-5};
  }
  const ps::GptOptions options{
      .vocabulary = 65, .context = 128, .width = 256, .layers = 8, .heads = 4, .dropout = 0, .tied_head = false};
  const torch::Tensor tokens = torch::randint(0, 65, {32, 129}, torch::kInt64);
  return {"GPT, 8 layers of 256, context 128, batch 32, m = 8",
          [options] { return std::make_unique<ps::Gpt>(options); },
          ps::next_token_loss,
          tokens.narrow(1, 0, 128).contiguous(),
          tokens.narrow(1, 1, 128).contiguous(),
          8,
          1e-3};
}

/// A plan, a pipeline that executes it, and what was found out about both, round by round.
struct Point {
  ps::Candidate candidate;
  ps::Plan plan;
  std::unique_ptr<ps::Pipeline> pipeline;
  std::vector<double> predicted, measured;  // ms
  std::string compared = {};                // of a choice of auto: what it measured, interleaved
  bool has_fixed_kernels = false;           // not predicted: the costs are of tuned kernels

  std::string name() const {
    return ps::say(candidate.schedule, " ", ps::to_string(candidate.weight_gradients),
                   has_fixed_kernels ? ", fixed kernels" : "");
  }
  double predicted_ms() const { return ps::median(predicted); }
  double measured_ms() const { return ps::median(measured); }
  /// Above 0 where the step is shorter than predicted. Round by round: the machine's speed changes from one to the
  /// next.
  double error() const {
    std::vector<double> ratios;
    for (std::size_t round = 0; round < measured.size(); ++round) ratios.push_back(predicted[round] / measured[round]);
    return ps::median(ratios) - 1;
  }
};

const char* kept(double value, double bar) { return value <= bar ? "kept" : "MISSED"; }

class Grid {
 public:
  explicit Grid(Workload workload) : workload_(std::move(workload)), network_(workload_.make()) {
    options_.micro_batches = workload_.micro_batches;
    options_.kernels = ps::Kernels::tuned;
    how_.sample = workload_.inputs;
    how_.sample_targets = workload_.targets;
    how_.profile.optimizer = optimizer_ = ps::sgd({.learning_rate = workload_.learning_rate});
  }

  /// A first profile: from it come the kernels, the partition of the profiled pipelines, and all plans.
  void plan(const std::vector<std::string>& schedules) {
    const ps::LayerCosts costs = ps::profile(world_, *network_, workload_.loss, options_, how_);
    options_.kernel_selection = costs.kernels;
    ps::PipelineOptions base = options_;
    base.partition = "time";  // found by the first, kept by the others
    for (const ps::ProfiledSteps& what : ps::profiled_steps) {
      const auto options =
          ps::profiled_options(what, base, {.ranks = ranks, .layers = static_cast<int>(costs.layers.size())});
      profiled_.push_back(make(options.value()));
      if (!what.in_chunks) base.partition = profiled_.back()->options().partition;
    }
    for (const std::string& schedule : schedules)
      for (const ps::WeightGradients mode : {ps::WeightGradients::stream, ps::WeightGradients::fused}) {
        const ps::Planned planned = ps::make_plan(costs, {.schedules = {schedule}, .weight_gradients = mode});
        add(planned, ps::Kernels::tuned);
        if (schedule == "1f1b" || schedule == "interleaved") add(planned, ps::Kernels::fixed);
      }
    points_.push_back(auto_point(costs.kernels));
  }

  /// Times the layers, and every plan's step, once each: in the order of the plans or the other way round.
  void run_round(bool forward) {
    std::vector<std::optional<ps::TimedRun>> runs;
    for (const auto& pipeline : profiled_)
      runs.emplace_back(ps::timed_run(*pipeline, {{workload_.inputs}, workload_.targets, 1}));
    rounds_.push_back(ps::costs_of(runs, workload_.targets.size(0)));
    for (std::size_t i = 0; i < points_.size(); ++i) {
      Point& point = points_[forward ? i : points_.size() - 1 - i];
      point.measured.push_back(step_ms(point));
    }
  }

  /// Compares the choice of auto with the best of the grid in new steps: the best of many noisy figures looks better
  /// than it is.
  void compare_choice(int pairs) {
    Point& chosen = points_.back();
    Point& best = best_of_grid();
    const Duel duel = run_duel(chosen, best, pairs);
    std::printf(
        "auto chooses %s, v = %d: %.1f ms, and the best of the grid, %s, %.1f ms; interleaved %.1f and %.1f ms: "
        "%+.1f %% (%s, at most %.0f %%)\n",
        chosen.name().c_str(), chosen.candidate.chunks, chosen.measured_ms(), best.name().c_str(), best.measured_ms(),
        duel.first_ms, duel.second_ms, 100 * duel.beside, kept(duel.beside, choice_bar), 100 * choice_bar);
  }

  /// Lets auto choose again, `runs` times and without a cache, and compares each choice with the best of the grid.
  void repeat_auto(int runs, int pairs) {
    Point& best = best_of_grid();
    std::printf("\n| auto run | chooses | v | m | took s | auto ms | best ms (%s) | beside | compared, ms |\n",
                best.name().c_str());
    std::printf("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n");
    std::vector<double> beside;
    for (int run = 1; run <= runs; ++run) {
      const std::int64_t begin = ps::now_ns();
      Point chosen = auto_point(/*kernel_selection=*/"");
      const double seconds = ps::s_since(begin);
      const Duel duel = run_duel(chosen, best, pairs);
      beside.push_back(duel.beside);
      std::printf("| %d | %s | %d | %d | %.0f | %.1f | %.1f | %+.1f %% | %s |\n", run, chosen.name().c_str(),
                  chosen.candidate.chunks, chosen.candidate.micro_batches, seconds, duel.first_ms, duel.second_ms,
                  100 * duel.beside, chosen.compared.c_str());
      std::fflush(stdout);
    }
    const double worst = std::ranges::max(beside);
    std::printf("auto in %d runs, beside the best of the grid: median %+.1f %%, worst %+.1f %% (%s, at most %.0f %%)\n",
                runs, 100 * ps::median(beside), 100 * worst, kept(worst, choice_bar), 100 * choice_bar);
  }

  void predict() {
    std::vector<double> slowdowns;
    for (const ps::LayerCosts& costs : rounds_) {
      slowdowns.push_back(costs.slowdown_under_load);
      for (Point& point : points_) point.predicted.push_back(ps::predict(point.plan, costs).makespan);
    }
    slowdown_under_load_ = ps::median(slowdowns);
  }

  /// What each term of the model buys: the same measurements against predictions without the term.
  void report_terms() const {
    std::printf(
        "\n| without | changes a step by: median | most | error: median | worst |\n"
        "| --- | ---: | ---: | ---: | ---: |\n");
    const Errors all = errors_of([](ps::StepModel&) {});
    ps::require<ps::InternalError>(all.most_change == 0, "the whole model and predict() differ by ", all.most_change);
    std::printf("| nothing | | | %.1f %% | %.1f %% |\n", 100 * all.median, 100 * all.worst);
    for (const ps::Term& term : ps::terms()) {
      const Errors without = errors_of(term.leave_out);
      std::printf("| %s | %.1f %% | %+.1f %% | %.1f %% | %.1f %% |\n", term.name, 100 * without.change,
                  100 * without.most_change, 100 * without.median, 100 * without.worst);
    }
  }

  void report() const {
    std::printf("\n## %s\n\n", workload_.title.c_str());
    std::printf(
        "| schedule | v | partition | predicted ms | measured ms | least ms | error |\n"
        "| --- | ---: | --- | ---: | ---: | ---: | ---: |\n");
    std::vector<const Point*> grid;
    for (const Point& point : points_)
      if (&point != &points_.back()) grid.push_back(&point);
    std::ranges::sort(grid, {}, &Point::measured_ms);
    for (const Point* point : grid)
      std::printf("| %s | %d | %s | %s | %.1f | %.1f | %s |\n", point->name().c_str(), point->candidate.chunks,
                  ps::to_string(point->candidate.partition),
                  point->has_fixed_kernels ? "-" : ps::fixed(point->predicted_ms(), 1).c_str(), point->measured_ms(),
                  std::ranges::min(point->measured),
                  point->has_fixed_kernels ? "-" : ps::say(ps::fixed(100 * point->error(), 1), " %").c_str());
    std::erase_if(grid, [](const Point* point) { return point->has_fixed_kernels; });
    std::vector<double> errors;
    const Point* worst = grid.front();
    for (const Point* point : grid) {
      errors.push_back(std::abs(point->error()));
      if (std::abs(point->error()) > std::abs(worst->error())) worst = point;
    }
    std::printf(
        "\nerror: median %.1f %% (%s, at most %.0f %%), worst %+.1f %% of %s (%s, at most %.0f %%), %zu "
        "points\n",
        100 * ps::median(errors), kept(ps::median(errors), median_bar), 100 * median_bar, 100 * worst->error(),
        worst->name().c_str(), kept(std::abs(worst->error()), worst_bar), 100 * worst_bar, errors.size());
    print_twins(grid);
    std::printf("all ranks at work make instructions %.2f times as long as one alone\n", slowdown_under_load_);
  }

 private:
  struct Errors {
    double median = 0, worst = 0;  // of the absolute errors of the grid's points
    /// The changes of the points' predictions, relative to those of the whole model: the median of their sizes, and the
    /// largest one with its sign.
    double change = 0, most_change = 0;
  };

  /// The errors of the grid with a changed model.
  Errors errors_of(const std::function<void(ps::StepModel&)>& change) const {
    std::vector<double> errors, changes;
    for (const Point& point : std::span(points_).first(points_.size() - 1)) {
      if (point.has_fixed_kernels) continue;
      std::vector<double> ratios, changes_of_point;
      for (std::size_t round = 0; round < rounds_.size(); ++round) {
        ps::StepModel model = ps::model_of(point.plan, rounds_[round]);
        change(model);
        const double predicted = ps::makespan(point.plan, model);
        ratios.push_back(predicted / point.measured[round]);
        changes_of_point.push_back(predicted / point.predicted[round] - 1);
      }
      errors.push_back(std::abs(ps::median(ratios) - 1));
      changes.push_back(ps::median(changes_of_point));
    }
    std::ranges::sort(changes, {}, [](double one) { return std::abs(one); });
    std::vector<double> sizes;
    for (const double one : changes) sizes.push_back(std::abs(one));
    return {ps::median(errors), std::ranges::max(errors), ps::median(sizes), changes.back()};
  }

  /// Steps of two points in pairs, now one first and now the other.
  struct Duel {
    double first_ms = 0, second_ms = 0;
    double beside = 0;  // above 0 where the first point's steps are longer
  };

  Duel run_duel(Point& first, Point& second, int pairs) const {
    std::vector<double> first_ms, second_ms, ratios;
    for (int pair = 0; pair < pairs; ++pair) {
      if (pair % 2 == 0) first_ms.push_back(step_ms(first));
      second_ms.push_back(step_ms(second));
      if (pair % 2 == 1) first_ms.push_back(step_ms(first));
      ratios.push_back(first_ms.back() / second_ms.back());
    }
    return {ps::median(first_ms), ps::median(second_ms), ps::median(ratios) - 1};
  }

  Point& best_of_grid() {
    return *std::ranges::min_element(points_.begin(), points_.end() - 1, {}, &Point::measured_ms);
  }

  /// The choice of auto, as `--schedule auto` makes it. Empty `kernel_selection`: kernels are measured too.
  Point auto_point(const std::string& kernel_selection) {
    ps::PipelineOptions options = options_;
    options.schedule = "auto";
    options.weight_gradients = ps::WeightGradients::automatic;
    options.kernel_selection = kernel_selection;
    const ps::AutoChoice choice = ps::choose_by_profile(world_, *network_, workload_.loss, options, how_);
    std::string compared;
    for (const ps::ComparedCandidate& one : choice.planned->compared)
      compared += ps::say(compared.empty() ? "" : "; ", one.candidate.schedule, " v ", one.candidate.chunks, " ",
                          ps::to_string(one.candidate.weight_gradients), " ", ps::fixed(one.step_ms, 1));
    return {choice.planned->candidates.front(), *choice.plan, make(choice.options), {}, {}, compared};
  }

  double step_ms(Point& point) const {
    point.pipeline->train_step(workload_.inputs, workload_.targets).wait();  // after another's, caches are cold
    const std::int64_t begin = ps::now_ns();
    point.pipeline->train_step(workload_.inputs, workload_.targets).wait();
    return ps::ms_since(begin);
  }

  std::unique_ptr<ps::Pipeline> make(const ps::PipelineOptions& options) {
    auto pipeline = std::make_unique<ps::Pipeline>(world_, *network_, workload_.loss,
                                                   ps::autotune(world_, *network_, workload_.loss, options, how_));
    pipeline->optimize_with(optimizer_);
    return pipeline;
  }

  void add(const ps::Planned& planned, ps::Kernels kernels) {
    ps::PipelineOptions options = options_;
    options.kernels = kernels;
    if (kernels == ps::Kernels::fixed) options.kernel_selection.clear();
    options.custom = planned.plan.schedule;
    options.partition = ps::partition_of(planned.plan);
    points_.push_back({.candidate = planned.candidates.front(),
                       .plan = planned.plan,
                       .pipeline = make(options),
                       .predicted = {},
                       .measured = {},
                       .has_fixed_kernels = kernels == ps::Kernels::fixed});
  }

  /// Points of one list of instructions and one partition do the same: what they differ by, nobody can predict.
  static void print_twins(const std::vector<const Point*>& grid) {
    double most = 0;
    for (const Point* a : grid)
      for (const Point* b : grid)
        if (a->plan.schedule.orders == b->plan.schedule.orders && a->plan.stages == b->plan.stages &&
            a->plan.schedule.rank_of_stage == b->plan.schedule.rank_of_stage)
          most = std::max(most, a->measured_ms() / b->measured_ms() - 1);
    std::printf("points of the same instructions and partition differ by up to %.1f %%\n", 100 * most);
  }

  Workload workload_;
  std::unique_ptr<ps::Cell> network_;
  ps::World world_{ps::WorldOptions{.stages = ranks}};
  ps::PipelineOptions options_;
  ps::AutotuneOptions how_;
  ps::OptimizerFactory optimizer_;
  std::vector<std::unique_ptr<ps::Pipeline>> profiled_;
  std::vector<Point> points_;  // the last one is what auto chooses
  std::vector<ps::LayerCosts> rounds_;
  double slowdown_under_load_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Predicted beside measured step times on this machine, and the choice of auto.");
  std::string workload = "mlp";
  int rounds = 30, pairs = 15, auto_runs = 0;
  std::vector<std::string> schedules;
  for (const ps::ScheduleGenerator& generator : ps::generators())
    if (ps::trains(generator)) schedules.emplace_back(generator.name);
  app.add_option("--workload", workload, "mlp, resnet50, gpt or hf:DIR")->check([](const std::string& name) {
    const bool is_known = name == "mlp" || name == "resnet50" || name == "gpt" || name.starts_with("hf:");
    return is_known ? std::string() : "there are mlp, resnet50, gpt and hf:DIR, a Hugging Face directory";
  });
  app.add_option("--rounds", rounds, "passes in which everything is measured once")->check(CLI::PositiveNumber);
  app.add_option("--pairs", pairs, "steps of auto's choice, each beside one of the best of the grid")
      ->check(CLI::PositiveNumber);
  app.add_option("--auto-runs", auto_runs, "further choices of auto, each compared with the best of the grid")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--schedules", schedules, "of the grid, each with weight gradients stream and fused")->delimiter(',');
  CLI11_PARSE(app, argc, argv);

  Grid grid(workload_called(workload));
  grid.plan(schedules);
  for (int round = 0; round < rounds; ++round) grid.run_round(round % 2 == 0);
  grid.predict();
  grid.report();
  grid.report_terms();
  grid.compare_choice(pairs);
  if (auto_runs > 0) grid.repeat_auto(auto_runs, pairs);
}
