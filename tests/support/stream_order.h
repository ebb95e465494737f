// The order of the operations on the streams of a device: which operation is known to come before which. Torch-free.
//
// Every stream and every thread of the host has a vector clock: for each stream the number of its operations that are
// known to be complete when the next operation of the stream begins, or now on the thread. An operation takes over
// what the launching thread knows; an event is a copy of its stream's clock, which waiting adds to another clock. An
// operation may read memory only where its stream's clock contains the last write, and may write it only where the
// clock contains the last write and all reads since.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace penstock::test {

/// Number 0 is the default stream of a device.
struct StreamNumber {
  static constexpr int devices = 3;
  static constexpr int per_device = 33;
  static constexpr std::size_t count = std::size_t{devices} * per_device;

  int device = 0;
  int stream = 0;

  std::size_t index() const { return static_cast<std::size_t>(device * per_device + stream); }
};

using StreamClock = std::array<std::uint64_t, StreamNumber::count>;

/// Two operations on one block of memory are not ordered, or an operation uses memory of a device that is not current.
class OrderViolation : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Thread-safe. `operation` is the name of an operator and must live as long as the order.
class StreamOrder {
 public:
  /// What the calling thread of the host knows.
  static StreamClock& host();

  void allocated(const void* block, StreamNumber owner);
  /// An allocator may give the block to a later operation of its owner at once. Adds a violation where an operation on
  /// another stream may still use it, unless that stream was recorded.
  void freed(const void* block);
  /// The block is not reused before the present work of `stream` is complete, even if it is freed earlier.
  void use_recorded(const void* block, StreamNumber stream);

  struct Access {
    const void* block = nullptr;
    int device = 0;
    bool writes = false;
  };
  struct Operation {
    const char* name = nullptr;
    StreamNumber stream;
    std::uint64_t number = 0;  // on its stream; 0: none
  };
  /// An operation on `stream`, launched by the calling thread. Throws OrderViolation, which names both operations, and
  /// adds its text to the violations.
  Operation launch(const char* operation, StreamNumber stream, const std::vector<Access>& accesses);
  /// `block` is the result of `operation`.
  void wrote(const Operation& operation, const void* block);

  /// An event on `stream`.
  StreamClock record(StreamNumber stream);
  void wait(StreamNumber stream, const StreamClock& event);
  /// The calling thread waits for the event; counted unless it only asked whether the event is complete.
  void synchronize(const char* operation, const StreamClock& event);
  void query(const StreamClock& event);

  /// The texts of all violations since the last call.
  std::vector<std::string> take_violations();
  /// How often any thread waited for a stream, by operation.
  std::map<std::string, int> synchronizations() const;
  void forget_synchronizations();
  /// How many operations of this name were launched since the start of the program.
  int launches(const std::string& operation) const;

 private:
  struct Block {
    StreamNumber owner;
    Operation write;
    std::map<std::size_t, Operation> reads;  // by stream, since the write
    std::bitset<StreamNumber::count> recorded;
  };

  static bool contains(const StreamClock& clock, const Operation& operation) {
    return clock[operation.stream.index()] >= operation.number;
  }
  [[noreturn]] void fail(const std::string& text);
  void require_order(const Operation& now, const Operation& before, const char* what);

  mutable std::mutex mutex_;
  std::array<StreamClock, StreamNumber::count> clocks_{};
  std::unordered_map<const void*, Block> blocks_;
  std::vector<std::string> violations_;
  std::map<std::string, int> synchronizations_;
  std::unordered_map<std::string, int> launches_;
};

}  // namespace penstock::test
