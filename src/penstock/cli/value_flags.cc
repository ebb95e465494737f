#include "penstock/cli/value_flags.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock::cli {
namespace {

constexpr std::int64_t minute = 60, hour = 60 * minute, day = 24 * hour;
// So that time_limit_text() of every limit is parsed again.
constexpr std::int64_t most_hours = 999'999, most_days = most_hours / 24 - 1;

constexpr std::string_view time_forms =
    ": pass hours, minutes and seconds as 11:30:00, minutes and seconds as 90:00, or days and hours as 1-11, 1-11:30 "
    "or 1-11:30:00";

/// A number of digits only that is at most `most`; -1 for any other text.
std::int64_t number_of_digits(std::string_view digits, std::int64_t most) {
  const auto number = digits.starts_with('-') ? std::nullopt : number_of<std::int64_t>(digits);
  return number && *number <= most ? *number : -1;
}

/// The numbers between colons. All but the first have two digits and are below 60; empty for any other text.
std::vector<std::int64_t> numbers_between_colons(std::string_view text) {
  std::vector<std::int64_t> numbers;
  for (const std::string_view digits : separated(text, ':')) {
    const std::int64_t number =
        numbers.empty() ? number_of_digits(digits, most_hours) : number_of_digits(digits, /*most=*/59);
    if (number < 0 || (!numbers.empty() && digits.size() != 2)) return {};
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

double parse_time_limit(std::string_view flag, std::string_view text) {
  const std::size_t dash = text.find('-');
  const bool has_days = dash != std::string_view::npos;
  const std::vector<std::int64_t> numbers = numbers_between_colons(has_days ? text.substr(dash + 1) : text);
  require<ConfigError>(has_days || numbers.size() != 1, flag, " ", text,
                       ": a plain number is ambiguous (Slurm reads minutes, and other programs read seconds)",
                       time_forms);
  const std::int64_t days = has_days ? number_of_digits(text.substr(0, dash), most_days) : 0;
  const bool is_form = days >= 0 && !numbers.empty() && numbers.size() <= 3 && (!has_days || numbers.front() < 24);
  require<ConfigError>(is_form, flag, " ", text, time_forms);
  // Days are followed by hours; without days two numbers are minutes and seconds, as Slurm reads them.
  std::int64_t unit = has_days || numbers.size() == 3 ? hour : minute, seconds = day * days;
  for (const std::int64_t number : numbers) {
    seconds += unit * number;
    unit /= 60;
  }
  require<ConfigError>(seconds > 0, flag, " ", text, ": pass a time above 0");
  return static_cast<double>(seconds);
}

std::string time_limit_text(double seconds) {
  const auto whole = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(seconds)));
  const auto two_digits = [](std::int64_t number) { return say(number < 10 ? "0" : "", number); };
  return say(whole / hour, ":", two_digits(whole / minute % 60), ":", two_digits(whole % minute));
}

}  // namespace penstock::cli
