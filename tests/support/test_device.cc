#include "tests/support/test_device.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "tests/support/test_device_memory.h"

namespace penstock::test {
namespace {

constexpr c10::DeviceType device_type = c10::DeviceType::PrivateUse1;

struct CurrentState {
  int device = 0;
  std::array<int, StreamNumber::devices> streams{};
};

CurrentState& current() {
  thread_local CurrentState state;
  return state;
}

c10::Stream stream_of(StreamNumber number) {
  return c10::Stream(c10::Stream::UNSAFE, test_device(number.device), number.stream);
}

/// Copies to the host that no thread has waited for.
class LateWrites {
 public:
  struct Write {
    c10::Storage to;
    std::size_t offset;
    std::vector<char> data;
    StreamNumber stream;
    std::uint64_t number;
  };

  void add(Write write) {
    const std::lock_guard lock(mutex_);
    writes_.push_back(std::move(write));
  }

  /// Executes those that the calling thread knows to be complete.
  void execute() {
    const std::lock_guard lock(mutex_);
    const StreamClock& known = StreamOrder::host();
    std::erase_if(writes_, [&](const Write& write) {
      if (known[write.stream.index()] < write.number) return false;
      std::memcpy(static_cast<char*>(write.to.mutable_data()) + write.offset, write.data.data(), write.data.size());
      return true;
    });
  }

 private:
  std::mutex mutex_;
  std::vector<Write> writes_;
};

LateWrites& late_writes() {
  static auto* writes = new LateWrites;
  return *writes;
}

/// The operations without an end that HeldStream queues, and who asks for what is behind them.
class Holds {
 public:
  using Hold = StreamOrder::Operation;

  void add(const Hold& hold) {
    const std::lock_guard lock(mutex_);
    held_.push_back({hold});
  }
  void remove(const Hold& hold) {
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(held_, [&](const Held& held) { return is_same(held.hold, hold); });
    }
    changed_.notify_all();
  }
  /// Whether `event` is behind one.
  bool ask(const StreamClock& event) {
    const std::lock_guard lock(mutex_);
    Held* held = find(event);
    if (held) ++held->times_asked;
    changed_.notify_all();
    return held;
  }
  /// The thread waits until `event` is behind none.
  void wait(const StreamClock& event) {
    std::unique_lock lock(mutex_);
    if (Held* held = find(event)) held->stops_a_thread = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !find(event); });
  }
  void wait_for_a_waiter(const Hold& hold) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      const Held& held = of(hold);
      return held.stops_a_thread || held.times_asked >= times_of_a_waiter;
    });
  }
  bool stops_a_thread(const Hold& hold) {
    const std::lock_guard lock(mutex_);
    return of(hold).stops_a_thread;
  }

 private:
  /// More than sends and receives ask in a step of a test.
  static constexpr int times_of_a_waiter = 100;

  struct Held {
    Hold hold;
    int times_asked = 0;
    bool stops_a_thread = false;
  };

  static bool is_same(const Hold& a, const Hold& b) {
    return a.stream.index() == b.stream.index() && a.number == b.number;
  }
  Held* find(const StreamClock& event) {
    const auto found = std::ranges::find_if(
        held_, [&](const Held& held) { return event[held.hold.stream.index()] >= held.hold.number; });
    return found == held_.end() ? nullptr : &*found;
  }
  const Held& of(const Hold& hold) const {
    return *std::ranges::find_if(held_, [&](const Held& held) { return is_same(held.hold, hold); });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Held> held_;
};

Holds& holds() {
  static auto* all = new Holds;
  return *all;
}

void synchronize(const char* operation, const StreamClock& event) {
  holds().wait(event);
  stream_order().synchronize(operation, event);
  late_writes().execute();
}

/// Whether the event is complete, of which the thread then knows.
bool query(const StreamClock& event) {
  if (holds().ask(event)) return false;
  stream_order().query(event);
  late_writes().execute();
  return true;
}

struct TestEvent {
  StreamClock clock{};
  std::chrono::steady_clock::time_point time{};
};

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return device_type; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return test_device(current().device); }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() >= 0 && device.index() < StreamNumber::devices, "there is no ", device);
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current().device = device.index(); }
  c10::Stream getStream(c10::Device device) const override { return stream_of(current_test_stream(device.index())); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_of({device.index(), 0}); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return next_stream(device); }
  c10::Stream getNewStream(c10::Device device, int) const override { return next_stream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    current().streams[static_cast<std::size_t>(stream.device_index())] = static_cast<int>(stream.id());
    return before;
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new TestEvent;
    *static_cast<TestEvent*>(*event) = {stream_order().record(number_of(stream)), std::chrono::steady_clock::now()};
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) stream_order().wait(number_of(stream), static_cast<TestEvent*>(event)->clock);
  }
  bool queryEvent(void* event) const override { return !event || query(static_cast<TestEvent*>(event)->clock); }
  void synchronizeEvent(void* event) const override {
    if (event) synchronize("event", static_cast<TestEvent*>(event)->clock);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<TestEvent*>(event);
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    const auto time = static_cast<TestEvent*>(second)->time - static_cast<TestEvent*>(first)->time;
    return std::chrono::duration<double, std::milli>(time).count();
  }
  bool queryStream(const c10::Stream& stream) const override { return query(stream_order().record(number_of(stream))); }
  void synchronizeStream(const c10::Stream& stream) const override { wait_for("stream", number_of(stream)); }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    for (int stream = 0; stream < StreamNumber::per_device; ++stream) wait_for("device", {device, stream});
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    stream_order().use_recorded(memory.get(), number_of(stream));
  }
  c10::DeviceIndex deviceCount() const noexcept override { return StreamNumber::devices; }

 private:
  // As CUDA does, streams of a fixed pool in turn.
  static c10::Stream next_stream(c10::Device device) {
    static std::array<std::atomic<unsigned>, StreamNumber::devices> made;
    const unsigned number = made[static_cast<std::size_t>(device.index())]++;
    return stream_of({device.index(), 1 + static_cast<int>(number % (StreamNumber::per_device - 1))});
  }
};

struct Memory {
  c10::Storage cpu;

  static void release(void* memory) {
    auto* held = static_cast<Memory*>(memory);
    stream_order().freed(held->cpu.data());
    delete held;
  }
};

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    c10::Storage cpu(c10::Storage::use_byte_size_t(), bytes, c10::GetCPUAllocator()->allocate(bytes),
                     c10::GetCPUAllocator(), false);
    return as_device_memory(std::move(cpu), current_test_device());
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return test_device_generator(device < 0 ? current_test_device() : device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }
  at::Device getDeviceFromPtr(void*) const override { return test_device(current_test_device()); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  c10::DeviceIndex deviceCount() const override { return StreamNumber::devices; }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current_test_device()); }
  void setCurrentDevice(c10::DeviceIndex device) const override { current().device = device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return static_cast<c10::DeviceIndex>(std::exchange(current().device, device));
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    c10::DataPtr fresh = test_device_allocator().allocate(bytes);
    std::memcpy(fresh.get(), storage.data(), std::min(bytes, storage.nbytes()));
    storage.set_data_ptr_noswap(std::move(fresh));
    storage.set_nbytes(bytes);
  }
};

/// Before main(), so that the device exists before LibTorch counts devices.
struct Registered {
  Registered() {
    static c10::impl::DeviceGuardImplRegistrar registrar(device_type, new Guard);
    c10::register_privateuse1_backend("test");
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    c10::SetAllocator(device_type, &test_device_allocator());
  }
} registered;

}  // namespace

StreamOrder& stream_order() {
  static auto* order = new StreamOrder;
  return *order;
}

c10::Allocator& test_device_allocator() {
  static auto* allocator = new Allocator;
  return *allocator;
}

c10::DataPtr as_device_memory(c10::Storage cpu_memory, int device) {
  void* data = cpu_memory.mutable_data();
  stream_order().allocated(data, current_test_stream(device));
  return {data, new Memory{std::move(cpu_memory)}, &Memory::release, test_device(device)};
}

StreamNumber number_of(const c10::Stream& stream) { return {stream.device_index(), static_cast<int>(stream.id())}; }

int current_test_device() { return current().device; }
StreamNumber current_test_stream() { return current_test_stream(current_test_device()); }
StreamNumber current_test_stream(int device) {
  const int known = device < 0 ? current_test_device() : device;
  return {known, current().streams[static_cast<std::size_t>(known)]};
}

const at::Generator& test_device_generator(int device) {
  static const auto* generators = [] {
    auto* made = new std::array<at::Generator, StreamNumber::devices>;
    for (at::Generator& each : *made) each = at::detail::createCPUGenerator();
    return made;
  }();
  return (*generators)[static_cast<std::size_t>(device)];
}

CurrentTestDevice::CurrentTestDevice(int device) : before_(std::exchange(current().device, device)) {}
CurrentTestDevice::~CurrentTestDevice() { current().device = before_; }

void write_later(c10::Storage to, std::size_t offset, std::vector<char> data, StreamNumber stream) {
  const std::uint64_t number = stream_order().record(stream)[stream.index()];
  std::memset(static_cast<char*>(to.mutable_data()) + offset, 0xee, data.size());
  late_writes().add({std::move(to), offset, std::move(data), stream, number});
}

// What a stream has waited for by the end of a hold is known only then.
void wait_for(const char* operation, StreamNumber stream) {
  holds().wait(stream_order().record(stream));
  synchronize(operation, stream_order().record(stream));
}

HeldStream::HeldStream(c10::Stream stream)
    : hold_(stream_order().launch("an endless operation", number_of(stream), {})) {
  holds().add(hold_);
}
HeldStream::~HeldStream() { holds().remove(hold_); }
void HeldStream::wait_for_a_waiter() const { holds().wait_for_a_waiter(hold_); }
bool HeldStream::stops_a_thread() const { return holds().stops_a_thread(hold_); }

}  // namespace penstock::test
