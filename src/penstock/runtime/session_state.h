// What the calls of an inference session have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "penstock/runtime/replica_input.h"

namespace penstock {

class Inferences;

struct SessionState {
  std::uint64_t id = 0;
  std::optional<std::int64_t> rows = std::nullopt;  // of the calls so far; none: there was none yet
  ReplicaInput replicas = ReplicaInput::share;      // as those calls had it
  int micro_batches = 0;
  const Inferences* pipeline = nullptr;       // of the pipeline it was opened in: to compare
  std::function<void(std::uint64_t)> forget;  // frees the memory on this process's ranks

  SessionState() = default;
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;
  ~SessionState();
};

}  // namespace penstock
