// Medians of measured numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace penstock {

/// The median of `values`; the mean of the two middle ones when their number is even; 0 when there are none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

/// Splits `values`, in order, into `steps` steps of equal size and returns the median of the steps' means. A delay that
/// occurs a few times in every step thus counts, as it does in the length of the step; a single slow step does not.
inline double median_of_steps(const std::vector<double>& values, std::size_t steps) {
  std::vector<double> means;
  for (std::size_t step = 0; step < steps; ++step) {
    const std::size_t begin = values.size() * step / steps, end = values.size() * (step + 1) / steps;
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += values[i];
    if (end > begin) means.push_back(sum / static_cast<double>(end - begin));
  }
  return median(std::move(means));
}

}  // namespace penstock
