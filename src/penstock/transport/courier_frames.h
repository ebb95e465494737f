// What the progress threads of two MPI processes tell each other, and its form on the wire. Torch-free.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "penstock/base/error.h"
#include "penstock/transport/frame.h"
#include "penstock/transport/tag.h"

namespace penstock::courier_frames {

/// What a frame is; travels as the MPI tag.
enum FrameKind { kind_letter = 1, kind_question, kind_answer, kind_abort, kind_cancel };

struct Question {
  std::uint64_t inquiry = 0;
};

/// Times are ages: clocks of two hosts cannot be compared.
struct Answer {
  std::uint64_t inquiry = 0;
  Position position;
  std::int64_t since_age_ns = 0;
  std::int64_t moved_age_ns = 0;
  std::int32_t waits_for = -1;
};

template <class T>
Frame frame_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  Frame frame(sizeof(T));
  std::memcpy(frame.data(), &value, sizeof(T));
  return frame;
}

template <class T>
T value_of(const Frame& frame) {
  require<TransportError>(frame.size() >= sizeof(T), "a frame of ", frame.size(), " bytes where ", sizeof(T),
                          " were expected: do all ranks run the same build?");
  T value;
  std::memcpy(&value, frame.data(), sizeof(T));
  return value;
}

inline Frame frame_of(const std::string& text) {
  Frame frame(text.size() + 1);
  std::memcpy(frame.data(), text.c_str(), text.size() + 1);
  return frame;
}

inline Frame frame_of(const StepKey& step, const std::string& text) {
  Frame frame(sizeof(step) + text.size() + 1);
  std::memcpy(frame.data(), &step, sizeof(step));
  std::memcpy(frame.data() + sizeof(step), text.c_str(), text.size() + 1);
  return frame;
}

}  // namespace penstock::courier_frames
