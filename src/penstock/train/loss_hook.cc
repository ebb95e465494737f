#include "penstock/train/hooks.h"

namespace penstock {

StateValues LossHook::save() const {
  StateValues state;
  add_numbers(state, "train", train_);
  add_numbers(state, "test", test_);
  return state;
}

void LossHook::load(const StateValues& state) {
  train_ = numbers_in(state, "train");
  test_ = numbers_in(state, "test");
}

}  // namespace penstock
