#include "penstock/runtime/session_state.h"

namespace penstock {

SessionState::~SessionState() {
  if (forget) forget(id);
}

}  // namespace penstock
