#include "penstock/cli/time_limit.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "penstock/base/error.h"

namespace penstock {

double parse_time_limit(std::string_view flag, std::string_view text) {
  constexpr double day = 86400;
  std::string_view rest = text;
  double seconds = 0;
  const auto whole = [&](std::string_view digits) {
    std::int64_t number = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    require<ConfigError>(!digits.empty() && error == std::errc() && end == digits.data() + digits.size() &&
                             number >= 0 && number < 1'000'000,
                         flag, " ", text, ": give hours, minutes and seconds as 11:30:00, or days before them as ",
                         "1-11:30:00");
    return static_cast<double>(number);
  };
  if (const auto dash = rest.find('-'); dash != std::string_view::npos) {
    seconds += day * whole(rest.substr(0, dash));
    rest.remove_prefix(dash + 1);
  }
  double unit_seconds = 0;
  for (std::size_t begin = 0;;) {
    const std::size_t colon = std::min(rest.find(':', begin), rest.size());
    unit_seconds = 60 * unit_seconds + whole(rest.substr(begin, colon - begin));
    if (colon == rest.size()) break;
    begin = colon + 1;
  }
  seconds += unit_seconds;
  require<ConfigError>(seconds > 0, flag, " ", text, ": give a time above 0");
  return seconds;
}

std::string time_limit_text(double seconds) {
  const auto whole = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(seconds)));
  const auto two_digits = [](std::int64_t number) { return say(number < 10 ? "0" : "", number); };
  return say(whole / 3600, ":", two_digits(whole / 60 % 60), ":", two_digits(whole % 60));
}

}  // namespace penstock
