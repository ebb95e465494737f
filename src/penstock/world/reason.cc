#include "penstock/world/reason.h"

#include <algorithm>

#include <c10/util/Exception.h>
#include <cxxabi.h>

#include <cstdlib>
#include <memory>

#include "penstock/base/error.h"

namespace penstock {

std::string reason_of(const std::exception& error) {
  const auto* from_torch = dynamic_cast<const c10::Error*>(&error);
  if (!from_torch) return error.what();
  std::string reason = from_torch->what_without_backtrace();
  // The frames may be part of the message itself.
  reason.resize(std::min({reason.find("\nframe #"), reason.find("\nException raised from"), reason.size()}));
  std::replace(reason.begin(), reason.end(), '\n', ' ');
  return reason;
}

std::string reason_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return reason_of(known);
  } catch (const std::string& text) {
    return text;
  } catch (const char* text) {
    return text ? text : "a null pointer was thrown";
  } catch (int number) {
    return say("the int ", number, " was thrown, which is no std::exception");
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> name(
        type ? abi::__cxa_demangle(type->name(), nullptr, nullptr, &status) : nullptr, &std::free);
    return say("something of type ", name ? name.get() : "unknown", " was thrown, which is no std::exception");
  }
}

}  // namespace penstock
