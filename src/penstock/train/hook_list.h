// The hooks of a Trainer, in the order in which they are called.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "penstock/checkpoint/manifest.h"
#include "penstock/runtime/result.h"
#include "penstock/train/hook.h"

namespace penstock {

/// Owns the hooks. Used by the Trainer's thread.
class HookList {
 public:
  /// Sorts `hook` after the hooks of equal priority.
  void add(std::unique_ptr<Hook> hook);

  /// Calls the function of every hook, as in call(&Hook::after_epoch, report).
  template <class... Parameters>
  void call(void (Hook::*function)(Parameters...), const std::type_identity_t<Parameters>&... arguments) const {
    for (const auto& hook : hooks_) ((*hook).*function)(arguments...);
  }

  /// Whether a hook wants the outputs of tests (`least` = of_tests), or those of training steps too (of_all).
  bool want_outputs(WantsOutputs least) const;
  /// Gives the outputs of a training step, or those of a step of a test, to the hooks that want them, where this
  /// process has them.
  void report_outputs(const StepResult& result, const StepReport& report) const;
  void report_outputs(const StepResult& result, const TestStepReport& report) const;

  /// The states of all hooks that have one, by "hook.MyHook", or "hook.MyHook-2" for the second hook of this name.
  std::map<std::string, StateValues> states() const;
  /// Gives each hook its state, if there is one.
  void load(const std::map<std::string, StateValues>& states) const;

 private:
  std::vector<std::unique_ptr<Hook>> hooks_;
};

}  // namespace penstock
