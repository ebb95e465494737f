// Which receives of long buffers are posted before the sizes of these buffers are known. Torch-free.
//
// The data of a buffer waits until its receive is posted. A receiver that first waits for the size costs a round trip,
// and on busy cores three changes of threads. A pipeline sends buffers of a few sizes again and again, so receives are
// posted early with a capacity from the past. Sender and receiver see the sizes in one order, so both know which
// receives are posted, without a message about them:
//
//   size of the buffer         40   40   30   70         70   90M        40
//   receive that takes it      new  early early new       early new       new
//   early ones that are void   -    -    -    2 of 40    -    2 of 70    -
//   posted behind it           2x40 1x40 1x40 2x70       1x70 none       2x40
//
// Receives are taken in the order in which they were posted. A void one gets an empty buffer, so that the next one has
// its turn.
#pragma once

#include <cstddef>

namespace penstock::processes {

/// The early receives of one connection in one direction. Each end has one of these and tells it every size in the
/// order of sending. Not thread-safe.
class EarlyPosts {
 public:
  /// How many receives are posted early: the next buffer does not wait until the receiver has seen the one before.
  static constexpr int ahead = 2;
  /// Longer buffers are not received early: their round trip is nothing beside their transfer, and their memory much.
  static constexpr std::size_t longest = std::size_t{4} << 20;

  /// What happens for one buffer, in this order.
  struct Step {
    int voided = 0;            // early receives that get an empty buffer each
    bool is_early = false;     // an early receive takes the buffer; otherwise one of its own size is posted
    int posted = 0;            // early receives that are then posted
    std::size_t capacity = 0;  // of each of these, in bytes

    friend bool operator==(const Step&, const Step&) = default;
  };

  /// The next buffer, of `bytes` bytes.
  Step next(std::size_t bytes) {
    if (bytes <= capacity_) return {.is_early = true, .posted = 1, .capacity = capacity_};
    const int voided = capacity_ > 0 ? ahead : 0;
    capacity_ = bytes <= longest ? bytes : 0;
    return {.voided = voided, .posted = capacity_ > 0 ? ahead : 0, .capacity = capacity_};
  }

 private:
  std::size_t capacity_ = 0;  // of the posted receives; 0: none are
};

}  // namespace penstock::processes
