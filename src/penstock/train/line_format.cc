#include "penstock/train/line_format.h"

namespace penstock {

std::string rates(double samples, double targets, double seconds) {
  if (seconds <= 0) return "no time taken";
  const std::string line = format_line("%.4g samples/s", samples / seconds);
  return targets > samples ? line + format_line(", %.4g tokens/s", targets / seconds) : line;
}

}  // namespace penstock
