#include "penstock/rank/infer_state.h"

#include <utility>

#include "penstock/base/error.h"

namespace penstock {

void InferState::add_part(Replica replica, Tensors outputs) {
  {
    std::lock_guard lock(mutex_);
    parts_.emplace(replica, std::move(outputs));
    if (static_cast<int>(parts_.size()) < expected_.parts) return;
    if (parts_.size() == 1) {
      outputs_ = std::move(parts_.begin()->second);
    } else {
      std::vector<Tensors> in_order;
      for (auto& [from, part] : parts_) in_order.push_back(std::move(part));
      outputs_ = expected_.axes.join(in_order);
    }
    parts_.clear();
  }
  changed_.notify_all();
}

void InferState::fail(std::exception_ptr error) {
  {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
  }
  changed_.notify_all();
}

void InferState::fetch() {
  std::function<void(std::shared_ptr<InferState>)> fetch;
  {
    std::lock_guard lock(mutex_);
    fetch = std::exchange(expected_.fetch, nullptr);
  }
  if (fetch) fetch(shared_from_this());
}

const Tensors& InferState::outputs() {
  fetch();
  std::unique_lock lock(mutex_);
  if (const auto failure = expected_.rank_watch->wait(lock, changed_, [&] { return outputs_ || error_; }))
    error_ = failure;
  if (error_) std::rethrow_exception(error_);
  return *outputs_;
}

bool InferState::ready() {
  fetch();
  std::lock_guard lock(mutex_);
  return outputs_ || error_;
}

}  // namespace penstock
