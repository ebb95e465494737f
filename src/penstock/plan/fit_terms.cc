#include "penstock/plan/fit_terms.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/schedule/lower.h"
#include "penstock/schedule/simulate.h"

namespace penstock {
namespace {

struct Term {
  const char* name;
  double StepTerms::*value;
  bool FittedTerms::*is_fitted;
  const char* advice;  // what would decide it
};

constexpr std::array terms_of_a_step{
    Term{"slowdown", &StepTerms::slowdown, &FittedTerms::slowdown, "other numbers of micro-batches"},
    Term{"send_share", &StepTerms::send_share, &FittedTerms::send_share, "more ranks, or chunks, whose messages count"},
    Term{"per_step", &StepTerms::per_step, &FittedTerms::per_step, "few and many micro-batches"}};
constexpr std::size_t term_count = terms_of_a_step.size();

constexpr double weight_of_mean = 0.01;
/// A term that lowers the largest error by less is not decided by the runs: measurements are not that accurate.
constexpr double least_gain = 0.001;

/// The errors of all runs as one number.
template <class Predicted>
double badness(std::span<const MeasuredStep> steps, const Predicted& predicted) {
  double worst = 0;
  double sum = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double error = std::abs(predicted(i) / steps[i].measured - 1);
    worst = std::max(worst, error);
    sum += error;
  }
  return worst + weight_of_mean * sum / static_cast<double>(steps.size());
}

/// The predicted steps near a point: exact up to the next change of a critical path.
class LinearModel {
 public:
  /// `predicted` has the simulated steps with the terms `at`.
  LinearModel(std::span<const MeasuredStep> steps, const StepTerms& at, std::vector<double> predicted,
              const FittedTerms& which)
      : steps_(steps), at_(at), which_(which), here_(std::move(predicted)) {
    constexpr double step_of_slope = 1e-4;
    for (const MeasuredStep& step : steps) {
      const double here = here_[slopes_.size()];
      std::array<double, term_count>& slopes = slopes_.emplace_back();
      for (std::size_t k = 0; k < term_count; ++k) {
        const Term& term = terms_of_a_step[k];
        if (!(which.*term.is_fitted)) continue;
        StepTerms moved = at;
        moved.*term.value += step_of_slope;
        const bool is_added = term.value == &StepTerms::per_step;
        slopes[k] = is_added ? 1 : (predicted_step(step, moved) - here) / step_of_slope;
        if (slopes[k] > 0) most_[k] = std::max(most_[k], step.measured / slopes[k]);
      }
    }
  }

  /// The terms with the least badness, which is convex in them: nested golden section searches.
  StepTerms best(const FittedTerms& which) const {
    StepTerms terms;
    least_from(0, which, terms);
    return terms;
  }
  StepTerms best() const { return best(which_); }

  double badness_of(const StepTerms& terms) const {
    return badness(steps_, [&](std::size_t i) {
      double predicted = here_[i];
      for (std::size_t k = 0; k < term_count; ++k)
        predicted += slopes_[i][k] * (terms.*terms_of_a_step[k].value - at_.*terms_of_a_step[k].value);
      return predicted;
    });
  }

 private:
  /// Sets the terms from number `k` on to their best values for the given ones before. Returns the badness.
  double least_from(std::size_t k, const FittedTerms& which, StepTerms& terms) const {
    if (k == term_count) return badness_of(terms);
    const Term& term = terms_of_a_step[k];
    terms.*term.value = 0;
    if (!(which.*term.is_fitted) || most_[k] == 0) return least_from(k + 1, which, terms);
    constexpr int sections = 36;
    constexpr double golden = 0.6180339887498949;
    double low = 0, high = most_[k];
    const auto at = [&](double value) {
      terms.*term.value = value;
      return least_from(k + 1, which, terms);
    };
    double left = high - golden * (high - low), right = low + golden * (high - low);
    double of_left = at(left), of_right = at(right);
    for (int i = 0; i < sections; ++i) {
      if (of_left <= of_right) {
        high = right;
        right = left;
        of_right = of_left;
        left = high - golden * (high - low);
        of_left = at(left);
      } else {
        low = left;
        left = right;
        of_left = of_right;
        right = low + golden * (high - low);
        of_right = at(right);
      }
    }
    const double of_none = at(0);
    const double of_some = at((low + high) / 2);
    return of_none <= of_some ? at(0) : of_some;
  }

  std::span<const MeasuredStep> steps_;
  StepTerms at_;
  FittedTerms which_;
  std::vector<double> here_;
  std::vector<std::array<double, term_count>> slopes_;
  std::array<double, term_count> most_{};  // beyond it, one term exceeds every measured step
};

StepTerms between(const StepTerms& from, const StepTerms& to, double share) {
  StepTerms terms;
  for (const Term& term : terms_of_a_step)
    terms.*term.value = from.*term.value + share * (to.*term.value - from.*term.value);
  return terms;
}

std::vector<double> predicted_steps(std::span<const MeasuredStep> steps, const StepTerms& terms) {
  std::vector<double> predicted;
  for (const MeasuredStep& step : steps) predicted.push_back(predicted_step(step, terms));
  return predicted;
}

double largest_error(std::span<const MeasuredStep> steps, const std::vector<double>& predicted) {
  double largest = 0;
  for (std::size_t i = 0; i < steps.size(); ++i)
    largest = std::max(largest, std::abs(predicted[i] / steps[i].measured - 1));
  return largest;
}

/// `model` is linear at the fitted terms; `without` are the predictions without terms.
std::vector<std::string> warnings_about(std::span<const MeasuredStep> steps, const StepTerms& fitted,
                                        const FittedTerms& which, const LinearModel& model,
                                        const std::vector<double>& without) {
  std::vector<std::string> warnings;
  std::vector<std::string> chosen;
  for (const Term& term : terms_of_a_step)
    if (which.*term.is_fitted) chosen.emplace_back(term.name);
  if (steps.size() < chosen.size() + 1)
    warnings.push_back(say(counted(std::ssize(steps), "run"), " for ", counted(std::ssize(chosen), "term"), " (",
                           listed(chosen), "): the errors say nothing; measure at least ",
                           counted(std::ssize(chosen) + 1, "run"), ", or fit fewer terms"));
  std::ptrdiff_t too_long = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) too_long += without[i] > steps[i].measured;
  if (too_long > 0)
    warnings.push_back(say(counted(too_long, "run"), " of ", steps.size(), " took less time than the costs predict ",
                           "without terms, and terms only add time: measure the costs again"));
  const double badness_with = model.badness_of(fitted);
  for (const Term& term : terms_of_a_step) {
    if (!(which.*term.is_fitted)) continue;
    FittedTerms others = which;
    others.*term.is_fitted = false;
    if (model.badness_of(model.best(others)) < badness_with + least_gain)
      warnings.push_back(say(term.name, " changes the largest error by less than ", percent(least_gain),
                             ": leave it out, or measure runs that decide it, with ", term.advice));
  }
  return warnings;
}

}  // namespace

FittedTerms fitted_terms_named(std::string_view text) {
  FittedTerms which{false, false, false};
  std::vector<std::string> names;
  for (const Term& term : terms_of_a_step) names.emplace_back(term.name);
  for (const std::string_view name : separated(text, ',')) {
    const auto term =
        std::find_if(terms_of_a_step.begin(), terms_of_a_step.end(), [&](const Term& one) { return one.name == name; });
    require<ConfigError>(term != terms_of_a_step.end(), "term '", name, "' is not known: did you mean '",
                         nearest(name, names), "'? The terms are ", listed(names));
    which.*term->is_fitted = true;
  }
  return which;
}

double predicted_step(const MeasuredStep& step, const StepTerms& terms) {
  StageCosts costs = step.costs;
  costs.terms = terms;
  const Simulation simulation = simulate(step.schedule, costs);
  return step.overlaps ? simulation.span : simulation.makespan;
}

TermFit fit_terms(std::span<const MeasuredStep> given, const FittedTerms& which) {
  require<ConfigError>(!given.empty(), "there are no measured steps: measure at least one");
  std::vector<MeasuredStep> steps(given.begin(), given.end());
  for (MeasuredStep& step : steps) {
    require<ConfigError>(std::isfinite(step.measured) && step.measured > 0, "the measured step of ", step.label, " is ",
                         step.measured, ": pass a time above 0");
    if (!step.schedule.is_lowered()) step.schedule = lower(step.schedule);  // once, and not in every simulation
  }
  const auto true_badness = [&](const std::vector<double>& predicted) {
    return badness(steps, [&](std::size_t i) { return predicted[i]; });
  };
  const std::vector<double> without = predicted_steps(steps, {});
  TermFit fit{.terms = {}, .predicted = without, .errors = {}, .warnings = {}};
  LinearModel model(steps, fit.terms, fit.predicted, which);
  constexpr int most_moves = 20;
  constexpr double negligible = 5e-5;
  for (int move = 0; move < most_moves; ++move) {
    const StepTerms from = fit.terms;
    const StepTerms target = model.best();
    const double least = true_badness(fit.predicted);
    if (model.badness_of(target) > least - negligible) break;
    bool has_moved = false;
    for (double share = 1; share > 0.1 && !has_moved; share /= 2) {
      const StepTerms terms = between(from, target, share);
      std::vector<double> predicted = predicted_steps(steps, terms);
      has_moved = true_badness(predicted) < least - negligible;
      if (!has_moved) continue;
      fit.terms = terms;
      fit.predicted = std::move(predicted);
    }
    if (!has_moved) break;
    model = LinearModel(steps, fit.terms, fit.predicted, which);
  }
  for (std::size_t i = 0; i < steps.size(); ++i) fit.errors.push_back(fit.predicted[i] / steps[i].measured - 1);
  std::vector<double> sizes;
  for (const double error : fit.errors) sizes.push_back(std::abs(error));
  std::sort(sizes.begin(), sizes.end());
  fit.median_error = (sizes[(sizes.size() - 1) / 2] + sizes[sizes.size() / 2]) / 2;
  fit.worst_error = sizes.back();
  fit.worst_error_without = largest_error(steps, without);
  fit.warnings = warnings_about(steps, fit.terms, which, model, without);
  return fit;
}

std::string to_table(const TermFit& fit, std::span<const MeasuredStep> steps) {
  std::vector<std::vector<std::string>> rows{{"run", "measured", "predicted", "error"}};
  for (std::size_t i = 0; i < steps.size(); ++i)
    rows.push_back({steps[i].label, fixed(steps[i].measured, 3), fixed(fit.predicted[i], 3), percent(fit.errors[i])});
  std::string text = aligned(rows);
  for (const Term& term : terms_of_a_step) text += say(term.name, " ", fixed(fit.terms.*term.value, 4), "\n");
  text += say("error: median ", percent(fit.median_error), ", worst ", percent(fit.worst_error), " (without terms ",
              percent(fit.worst_error_without), ")\n");
  for (const std::string& warning : fit.warnings) text += say("warning: ", warning, "\n");
  return text;
}

}  // namespace penstock
