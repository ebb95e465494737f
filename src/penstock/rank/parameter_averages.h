// The exponential moving average of the parameters of a rank's stages.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "penstock/rank/stage.h"

namespace penstock {

/// Used on its rank's thread.
class ParameterAverages {
 public:
  /// `stages` must outlive it.
  explicit ParameterAverages(const RankStages& stages) : stages_(stages) {}

  /// Starts averages of the trained parameters, from their present values.
  void keep(double decay);
  /// To be called after each update of `stage`. Does nothing unless averages are kept.
  void add(const Stage& stage);
  /// The averages of one stage, by parameter.
  const std::map<std::string, torch::Tensor>& of(StageId stage) { return averages_[stage]; }
  /// Where averages are kept, takes those of a stage from `averages`, and the value of a trained parameter that they
  /// lack.
  void load(const Stage& stage, const std::map<std::string, torch::Tensor>& averages);
  /// Exchanges the values of parameters and their averages.
  void swap();

 private:
  const RankStages& stages_;
  std::optional<double> decay_;
  std::map<StageId, std::map<std::string, torch::Tensor>> averages_;  // by parameter
};

}  // namespace penstock
