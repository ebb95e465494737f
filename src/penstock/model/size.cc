#include "penstock/model/size.h"

#include "penstock/base/error.h"

namespace penstock {

Size Size::of_samples(std::int64_t factor) {
  Size size(factor);
  size.is_of_samples_ = true;
  return size;
}

Size::operator std::int64_t() const {
  require<ScheduleError>(
      is_number(),
      "forward uses the number of samples as a number, but it differs between "
      "micro-batches and has no value while the network is traced: keep it as a size (auto n = x.size(0)) and give it "
      "to view(), reshape() or expand(), or put the code that needs it into penstock::apply(name, "
      "function, {values})");
  return factor_;
}

Size operator*(const Size& a, const Size& b) {
  require<ScheduleError>(a.is_number() || b.is_number(),
                         "forward multiplies the number of samples with itself: no value "
                         "has such a size");
  const std::int64_t factor = a.factor() * b.factor();
  return a.is_number() && b.is_number() ? Size(factor) : Size::of_samples(factor);
}

Size operator/(const Size& a, const Size& b) {
  require<ScheduleError>(b.factor() != 0, "forward divides a size by 0");
  if (a.is_number() && b.is_number()) return Size(a.factor() / b.factor());
  require<ScheduleError>(
      !a.is_number() && a.factor() % b.factor() == 0,
      "forward divides a multiple of the number of "
      "samples, or by one, and it does not go evenly: put the code that needs this into penstock::apply(name, "
      "function, {values})");
  return b.is_number() ? Size::of_samples(a.factor() / b.factor()) : Size(a.factor() / b.factor());
}

}  // namespace penstock
