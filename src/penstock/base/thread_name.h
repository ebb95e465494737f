// Names of threads, as `top -H`, gdb and perf show them.
#pragma once

#include <pthread.h>

#include <string>

namespace penstock {

/// Names the calling thread. Linux keeps 15 bytes; the rest is cut off.
inline void name_this_thread(const std::string& name) {
  ::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
}

}  // namespace penstock
