#include "penstock/train/hook.h"

#include <algorithm>
#include <optional>
#include <typeinfo>

#include <c10/util/Type.h>

#include "penstock/base/error.h"

namespace penstock {

std::string Hook::name() const { return c10::demangle(typeid(*this).name()); }

namespace {

/// Numbers hooks of one name.
class StateNames {
 public:
  std::string of(const Hook& hook) {
    const int number = ++counts_[hook.name()];
    return say("hook.", hook.name(), number > 1 ? say("-", number) : std::string());
  }

 private:
  std::map<std::string, int> counts_;
};

}  // namespace

void HookList::add(std::unique_ptr<Hook> hook) {
  const auto place = std::upper_bound(hooks_.begin(), hooks_.end(), hook->priority(),
                                      [](int priority, const auto& other) { return priority < other->priority(); });
  hooks_.insert(place, std::move(hook));
}

bool HookList::want_outputs(WantsOutputs least) const {
  return std::any_of(hooks_.begin(), hooks_.end(), [&](const auto& hook) { return hook->wants_outputs() >= least; });
}

void HookList::report_outputs(const StepResult& result, const StepReport& report) const {
  if (!want_outputs(WantsOutputs::of_all)) return;
  const std::optional<BatchOutputs> outputs = result.outputs();
  if (!outputs) return;
  for (const auto& hook : hooks_)
    if (hook->wants_outputs() >= WantsOutputs::of_all) hook->after_batch(report, *outputs);
}

void HookList::report_outputs(const StepResult& result, const TestStepReport& report) const {
  if (!want_outputs(WantsOutputs::of_tests)) return;
  const std::optional<BatchOutputs> outputs = result.outputs();
  if (!outputs) return;
  for (const auto& hook : hooks_)
    if (hook->wants_outputs() >= WantsOutputs::of_tests) hook->after_test_batch(report, *outputs);
}

std::map<std::string, StateValues> HookList::states() const {
  std::map<std::string, StateValues> states;
  StateNames names;
  for (const auto& hook : hooks_) {
    const std::string name = names.of(*hook);
    if (StateValues state = hook->save(); !state.empty()) states[name] = std::move(state);
  }
  return states;
}

void HookList::load(const std::map<std::string, StateValues>& states) const {
  StateNames names;
  for (const auto& hook : hooks_)
    if (const auto state = states.find(names.of(*hook)); state != states.end()) hook->load(state->second);
}

}  // namespace penstock
