#include "penstock/model/random_generator.h"

#include <algorithm>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

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

}  // namespace

TorchDraws::TorchDraws() : guard_(draws_key) {}

}  // namespace penstock
