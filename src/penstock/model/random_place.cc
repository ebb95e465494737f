#include "penstock/model/random_place.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "penstock/base/hash.h"

namespace penstock {
namespace {

// A mode key reserved for code outside of LibTorch. It precedes autograd and autocast, and LibTorch does not use it.
constexpr c10::DispatchKey draws_key = c10::DispatchKey::DeferredInit;

bool takes_generator(const c10::Argument& argument) {
  return argument.type()->isSubtypeOf(*c10::OptionalType::create(c10::GeneratorType::get()));
}

/// True for operators that fill existing tensors. The others, which create a tensor, call one of these.
bool draws(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  const auto is_tensor = [](const c10::Argument& one) { return one.type()->kind() == c10::TypeKind::TensorType; };
  return std::ranges::any_of(arguments, takes_generator) && std::ranges::any_of(arguments, is_tensor);
}

bool is_on_cpu(const torch::jit::Stack& stack, std::size_t arguments) {
  for (std::size_t i = stack.size() - arguments; i < stack.size(); ++i)
    if (stack[i].isTensor() && stack[i].toTensor().defined()) return stack[i].toTensor().is_cpu();
  return false;
}

void draw_from_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  if (is_on_cpu(*stack, arguments.size())) {
    const std::size_t first = stack->size() - arguments.size();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      c10::IValue& value = (*stack)[first + i];
      if (!value.isNone() || !takes_generator(arguments[i])) continue;
      if (at::Generator generator = generator_of_call(); generator.defined()) value = std::move(generator);
    }
  }
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, draws_key), stack);
}

/// Initialised before main(), when no other thread can be dispatching; LibTorch's operators are registered by then.
struct Registered {
  torch::Library any{torch::Library::IMPL, "_", draws_key, __FILE__, __LINE__};
  torch::Library aten{torch::Library::IMPL, "aten", draws_key, __FILE__, __LINE__};

  Registered() {
    any.fallback(torch::CppFunction::makeFallthrough());
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (!op || !name.getNamespace() || *name.getNamespace() != "aten" || !draws(op->schema())) continue;
      const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
      aten.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&draw_from_call>());
    }
  }
} registered;

/// The state of a guard. Guards can be nested: a call may run another pipeline.
struct Level {
  const RandomPlace* place = nullptr;
  TorchDraws torch_draws = {};
  at::Generator generator = {};  // made at the first draw
  std::uint64_t seeded_for = 0;  // RandomPlace::calls when the generator was seeded
  std::uint64_t counted_for = 0;
  std::uint64_t draws = 0;  // of the call counted_for
};

thread_local std::vector<std::unique_ptr<Level>> levels_of_thread;
thread_local at::Generator spare_of_thread;

/// One per device, never destroyed.
std::mutex& mutex_of(c10::Device device) {
  static std::mutex all;
  static std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, std::mutex> by_device;
  const std::lock_guard<std::mutex> lock(all);
  return by_device[{device.type(), device.index()}];
}

}  // namespace

TorchDraws::TorchDraws() : guard_(draws_key) {}

// FNV-1a of the call's name, the step and the seed.
std::uint64_t key_of(const RandomPlace& place, std::uint64_t draw) {
  const std::uint64_t hash = number_hash(place.seed, number_hash(place.step, text_hash(place.call)));
  return draw > 0 ? fnv_mixed(hash, draw) : hash;
}

std::uint64_t seed_of_call(const RandomPlace& place) {
  // Mixed, because the keys of neighbouring micro-batches differ in few bits.
  const std::uint64_t samples = (static_cast<std::uint64_t>(place.first_sample) + 1) * splitmix_increment;
  return splitmix_mixed(key_of(place, 0) ^ samples);
}

const RandomPlace* RandomPlace::current() {
  return levels_of_thread.empty() ? nullptr : levels_of_thread.back()->place;
}

std::uint64_t RandomPlace::next_draw() {
  if (levels_of_thread.empty()) return 0;
  Level& level = *levels_of_thread.back();
  if (level.counted_for != level.place->calls) level.draws = 0;
  level.counted_for = level.place->calls;
  return level.draws++;
}

at::Generator generator_of_call() {
  if (levels_of_thread.empty()) return {};
  Level& level = *levels_of_thread.back();
  const bool is_new = !level.generator.defined();
  if (is_new) level.generator = std::exchange(spare_of_thread, {});
  if (!level.generator.defined()) level.generator = at::detail::createCPUGenerator();
  if (is_new || level.seeded_for != level.place->calls) {
    level.generator.set_current_seed(seed_of_call(*level.place));
    level.seeded_for = level.place->calls;
  }
  return level.generator;
}

RandomPlaceGuard::RandomPlaceGuard(const RandomPlace& place) {
  levels_of_thread.push_back(std::make_unique<Level>());
  levels_of_thread.back()->place = &place;
}

RandomPlaceGuard::~RandomPlaceGuard() {
  // The generator is reused unless somebody still holds it, such as a module that keeps it.
  at::Generator& used = levels_of_thread.back()->generator;
  if (used.defined() && used.getIntrusivePtr().use_count() == 1) spare_of_thread = std::move(used);
  levels_of_thread.pop_back();
}

struct DeviceRandomGuard::Seeded {
  std::lock_guard<std::mutex> lock;
  at::Generator generator;
  at::Tensor before;
};

DeviceRandomGuard::DeviceRandomGuard(const RandomPlace& place, c10::Device device) {
  if (device.is_cpu() || device.is_meta()) return;
  at::Generator generator = at::globalContext().defaultGenerator(device);
  seeded_ = new Seeded{std::lock_guard<std::mutex>(mutex_of(device)), generator, {}};
  const std::lock_guard<std::mutex> lock(generator.mutex());
  seeded_->before = generator.get_state();
  generator.set_current_seed(seed_of_call(place));
}

DeviceRandomGuard::~DeviceRandomGuard() {
  if (!seeded_) return;
  {
    const std::lock_guard<std::mutex> lock(seeded_->generator.mutex());
    seeded_->generator.set_state(seeded_->before);
  }
  delete seeded_;
}

}  // namespace penstock
