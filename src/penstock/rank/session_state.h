// The common state of the calls of an inference session.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "penstock/rank/replica_input.h"

namespace penstock {

class Inferences;

struct SessionState {
  std::uint64_t id = 0;
  std::optional<std::int64_t> rows = std::nullopt;  // of the calls so far; none before the first call
  ReplicaInput replicas = ReplicaInput::share;      // InferOptions of the calls so far
  int micro_batches = 0;                            // the same
  const Inferences* pipeline = nullptr;             // identifies the session's pipeline; not dereferenced
  std::function<void(std::uint64_t)> forget;        // frees the session's memory on this process's ranks

  SessionState() = default;
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;
  ~SessionState() {
    if (forget) forget(id);
  }
};

}  // namespace penstock
