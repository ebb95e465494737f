#include "penstock/world/failures.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include <c10/util/Exception.h>
#include <cxxabi.h>

#include "penstock/base/error.h"
#include "penstock/base/log.h"

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
    return say("the int ", number, " was thrown, which is not a std::exception");
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> name(
        type ? abi::__cxa_demangle(type->name(), nullptr, nullptr, &status) : nullptr, &std::free);
    return say("something of type ", name ? name.get() : "unknown", " was thrown, which is not a std::exception");
  }
}

namespace {

// A program may run for long with failing steps.
constexpr std::size_t most_failures = 100;

}  // namespace

Failures::Failure& Failures::find(const std::exception_ptr& error) {
  std::string reason = reason_of(error);
  const auto same = [&](const Failure& failure) { return failure.reason == reason; };
  const auto found = std::find_if(all_.begin(), all_.end(), same);
  if (found != all_.end()) return *found;
  if (all_.size() >= most_failures) {
    const auto old = std::find_if(all_.begin(), all_.end(), [](const Failure& failure) { return failure.reported; });
    all_.erase(old == all_.end() ? all_.begin() + 1 : old);
  }
  return all_.emplace_back(Failure{std::move(reason), error});
}

void Failures::add(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  find(error);
}

void Failures::mark_reported(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  find(error).reported = true;
}

bool Failures::is_reported(const std::exception_ptr& error) const {
  const std::string reason = reason_of(error);
  const std::lock_guard lock(mutex_);
  return std::any_of(all_.begin(), all_.end(),
                     [&](const Failure& failure) { return failure.reported && failure.reason == reason; });
}

std::exception_ptr Failures::first_unreported() const {
  const std::lock_guard lock(mutex_);
  for (const Failure& failure : all_)
    if (!failure.reported) return failure.error;
  return nullptr;
}

std::string Failures::newest() const {
  const std::lock_guard lock(mutex_);
  return all_.empty() ? std::string() : all_.back().reason;
}

bool Failures::is_newest_misuse() const {
  const std::lock_guard lock(mutex_);
  if (all_.empty()) return false;
  try {
    std::rethrow_exception(all_.back().error);
  } catch (const Misuse&) {
    return true;
  } catch (...) {
    return false;
  }
}

void Failures::log_unreported(const std::string& where) {
  const std::lock_guard lock(mutex_);
  for (Failure& failure : all_)
    if (!failure.reported && !std::exchange(failure.logged, true))
      log(LogLevel::error, say(where, " a failure that was not reported before: ", failure.reason));
}

}  // namespace penstock
