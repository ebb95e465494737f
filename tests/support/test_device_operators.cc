// The operators of the test device. An operator that is not named here runs as that of the CPU, on tensors that share
// the memory of its arguments; a result that it allocates becomes memory of the device.
#include <algorithm>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <torch/library.h>

#include "tests/support/test_device.h"
#include "tests/support/test_device_memory.h"

namespace penstock::test {
namespace {

using Access = StreamOrder::Access;

bool is_ours(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::DeviceType::PrivateUse1;
}

const void* block_of(const at::Tensor& tensor) { return tensor.storage().data(); }

Access reads(const at::Tensor& tensor) { return {block_of(tensor), tensor.device().index(), false}; }
Access writes(const at::Tensor& tensor) { return {block_of(tensor), tensor.device().index(), true}; }

at::Tensor make_tensor(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like) {
  at::Tensor made = at::detail::make_tensor<at::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return made;
}

/// A tensor of the CPU over the memory of `tensor`. Its storage may be resized: then it has other memory.
at::Tensor on_cpu(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  c10::Storage shared(c10::Storage::use_byte_size_t(), storage.nbytes(),
                      c10::DataPtr(const_cast<void*>(storage.data()), c10::kCPU), c10::GetCPUAllocator(), true);
  at::Tensor alias = make_tensor(std::move(shared), c10::DispatchKey::CPU, tensor);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) alias.unsafeGetTensorImpl()->set_wrapped_number(true);
  alias._set_conj(tensor.is_conj());
  alias._set_neg(tensor.is_neg());
  return alias;
}

/// `cpu` as a tensor of the device, without a copy.
at::Tensor adopted(const at::Tensor& cpu, int device) {
  const c10::Storage& memory = cpu.storage();
  const std::size_t bytes = memory.nbytes();
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, as_device_memory(memory, device),
                       &test_device_allocator(), true);
  return make_tensor(std::move(storage), c10::DispatchKey::PrivateUse1, cpu);
}

/// Operators that return a number to the host, or whose result has a shape that depends on the data.
bool waits_for_the_host(std::string_view name) {
  static constexpr std::string_view names[] = {"aten::equal",    "aten::nonzero",  "aten::masked_select",
                                               "aten::_unique2", "aten::bincount", "aten::is_nonzero"};
  return std::ranges::find(names, name) != std::end(names);
}

/// Replaces each tensor in `value` by what `replace` returns for it.
template <class Replace>
void for_each_tensor(c10::IValue& value, const Replace& replace) {
  if (value.isTensor()) {
    value = replace(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(replace(tensor));
    value = list;
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList())
      list.push_back(tensor ? std::optional(replace(*tensor)) : std::nullopt);
    value = list;
  }
}

/// One call of an operator by way of the CPU.
class Fallback {
 public:
  Fallback(const c10::OperatorHandle& op, torch::jit::Stack& stack) : op_(op), stack_(stack) {}

  void run() {
    const auto& arguments = op_.schema().arguments();
    const std::size_t first = stack_.size() - arguments.size();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const c10::AliasInfo* alias = arguments[i].alias_info();
      writes_ = alias && alias->isWrite();
      replace(stack_[first + i]);
    }
    TORCH_CHECK(device_ >= 0, op_.schema().name(), " has no tensor of the test device");
    for (std::size_t i = 0; i < arguments.size(); ++i) give_generator(stack_[first + i], arguments[i]);
    const char* name = op_.schema().name().c_str();
    const StreamNumber stream = current_test_stream();
    const StreamOrder::Operation operation = stream_order().launch(name, stream, accesses_);
    op_.callBoxed(&stack_);
    for (std::size_t i = stack_.size() - op_.schema().returns().size(); i < stack_.size(); ++i)
      bring_back(stack_[i], operation);
    for (const Replaced& each : replaced_) take_over_size(each, operation);
    if (waits_for_the_host(name)) wait_for(name, stream);
  }

 private:
  struct Replaced {
    at::Tensor original;
    at::Tensor alias;
    const void* memory = nullptr;
  };

  at::Tensor alias_of(const at::Tensor& tensor) {
    if (!is_ours(tensor)) return tensor;
    device_ = device_ < 0 ? tensor.device().index() : device_;
    accesses_.push_back(writes_ ? writes(tensor) : reads(tensor));
    for (const Replaced& each : replaced_)
      if (each.original.is_same(tensor)) return each.alias;
    replaced_.push_back({tensor, on_cpu(tensor), tensor.storage().data()});
    return replaced_.back().alias;
  }

  void replace(c10::IValue& value) {
    for_each_tensor(value, [this](const at::Tensor& tensor) { return alias_of(tensor); });
    if (value.isDevice() && value.toDevice().type() == c10::DeviceType::PrivateUse1) {
      value = c10::Device(c10::kCPU);
    }
  }

  void give_generator(c10::IValue& value, const c10::Argument& argument) const {
    if (!value.isNone() || !argument.type()->isSubtypeOf(*c10::OptionalType::create(c10::GeneratorType::get()))) return;
    value = test_device_generator(device_);
  }

  at::Tensor from_cpu(const at::Tensor& tensor, const StreamOrder::Operation& operation) const {
    if (!tensor.defined()) return tensor;
    for (const Replaced& each : replaced_)
      if (each.alias.is_same(tensor)) return each.original;
    for (const Replaced& each : replaced_)
      if (each.alias.storage().is_alias_of(tensor.storage()))
        return make_tensor(each.original.storage(), c10::DispatchKey::PrivateUse1, tensor);
    at::Tensor made = adopted(tensor, device_);
    stream_order().wrote(operation, block_of(made));
    return made;
  }

  void bring_back(c10::IValue& value, const StreamOrder::Operation& operation) const {
    for_each_tensor(value, [&](const at::Tensor& tensor) { return from_cpu(tensor, operation); });
  }

  /// An operator may resize the tensors that it writes.
  static void take_over_size(const Replaced& each, const StreamOrder::Operation& operation) {
    at::TensorImpl* original = each.original.unsafeGetTensorImpl();
    if (each.alias.storage().data() != each.memory) {
      const at::Tensor fresh = adopted(each.alias, operation.stream.device);
      stream_order().wrote(operation, block_of(fresh));
      original->set_storage_keep_dtype(fresh.storage());
    }
    if (original->sizes() != each.alias.sizes() || original->strides() != each.alias.strides())
      original->set_sizes_and_strides(each.alias.sizes(), each.alias.strides());
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  bool writes_ = false;
  int device_ = -1;
  std::vector<Access> accesses_;
  std::vector<Replaced> replaced_;
};

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) { Fallback(op, *stack).run(); }

int index_of(std::optional<c10::Device> device) {
  return device && device->has_index() ? device->index() : current_test_device();
}

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const CurrentTestDevice guard(index_of(device));
  return at::detail::empty_generic(sizes, &test_device_allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const CurrentTestDevice guard(index_of(device));
  return at::detail::empty_strided_generic(sizes, strides, &test_device_allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(type));
}

at::Tensor as_strided(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                      std::optional<std::int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}
at::Tensor view(const at::Tensor& self, c10::IntArrayRef sizes) { return at::native::view(self, sizes); }
at::Tensor reshape_alias(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  return at::native::_reshape_alias(self, sizes, strides);
}
const at::Tensor& resize(const at::Tensor& self, c10::IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  return at::native::resize_(self, sizes, format);
}
at::Tensor& set_storage(at::Tensor& self, at::Storage storage, std::int64_t offset, c10::IntArrayRef sizes,
                        c10::IntArrayRef strides) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  if (strides.empty() && !sizes.empty()) {
    self.unsafeGetTensorImpl()->set_storage_offset(offset);
    self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  } else {
    self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  }
  return self;
}
at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

// So that Module::to(device) may give its parameters memory of the device.
bool has_compatible_type(const at::Tensor&, const at::Tensor&) { return true; }

at::Scalar local_scalar(const at::Tensor& self) {
  const CurrentTestDevice guard(self.device().index());  // as that of CUDA
  stream_order().launch("aten::_local_scalar_dense", current_test_stream(), {reads(self)});
  wait_for("aten::_local_scalar_dense", current_test_stream());
  return at::native::_local_scalar_dense_cpu(on_cpu(self));
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  stream_order().use_recorded(block_of(self), number_of(stream));
}

void copy_to_host(const at::Tensor& self, const at::Tensor& to, bool non_blocking) {
  const StreamNumber stream = current_test_stream();
  stream_order().launch("copy to the host", stream, {reads(self)});
  if (!non_blocking) {
    wait_for("copy to the host", stream);
    to.copy_(on_cpu(self));
    return;
  }
  const at::Tensor value = at::empty_strided(to.sizes(), to.strides(), to.options()).copy_(on_cpu(self));
  const auto* bytes = static_cast<const char*>(value.const_data_ptr());
  TORCH_CHECK(to.is_non_overlapping_and_dense(), "a non_blocking copy to the host needs dense memory");
  write_later(to.storage(), static_cast<std::size_t>(to.storage_offset()) * to.element_size(),
              {bytes, bytes + value.nbytes()}, stream);
}

// As CUDA does: on the current stream of the source's device, ordered before and after with that of the target.
void copy_between_devices(const at::Tensor& self, const at::Tensor& to) {
  const StreamNumber source = current_test_stream(self.device().index());
  const StreamNumber target = current_test_stream(to.device().index());
  TORCH_CHECK(current_test_device() == source.device || current_test_device() == target.device, "a copy from device ",
              source.device, " to ", target.device, " while device ", current_test_device(), " is the current one");
  StreamOrder& order = stream_order();
  order.wait(source, order.record(target));
  Access written = writes(to);
  written.device = source.device;
  order.launch("copy between devices", source, {reads(self), written});
  on_cpu(to).copy_(on_cpu(self));
  order.wait(target, order.record(source));
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool non_blocking) {
  const at::NoGradGuard no_grad;
  if (!is_ours(to)) {
    copy_to_host(self, to, non_blocking);
  } else if (!is_ours(self)) {
    const StreamNumber stream = current_test_stream();
    stream_order().launch("copy from the host", stream, {writes(to)});
    on_cpu(to).copy_(self);
    if (!non_blocking) wait_for("copy from the host", stream);
  } else if (self.device() == to.device()) {
    stream_order().launch("aten::copy_", current_test_stream(), {reads(self), writes(to)});
    on_cpu(to).copy_(on_cpu(self));
  } else {
    copy_between_devices(self, to);
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  to.resize_(self.sizes());
  return copy_from(self, to, false);
}

// As that of the CPU, which draws the same numbers as dropout without it, but from the generator of the device.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  const at::Tensor noise = at::empty_like(input).bernoulli_(1 - p);
  return {input * noise.div(1 - p), noise.to(at::kBool)};
}

// LibTorch gives convolutions of other backends to these two, which the CPU does not have.
at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
                       bool transposed, c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  torch::jit::Stack stack;
  torch::jit::push(stack, input, weight, bias, C10_AS_INTARRAYREF_SLOW(stride), C10_AS_INTARRAYREF_SLOW(padding),
                   C10_AS_INTARRAYREF_SLOW(dilation), transposed, C10_AS_INTARRAYREF_SLOW(output_padding),
                   groups.expect_int());
  run_on_cpu(op, &stack);
  return stack.back().toTensor();
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight, c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding,
    c10::SymInt groups, std::array<bool, 3> mask) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", "");
  std::optional<std::vector<std::int64_t>> bias_sizes;
  if (mask[2]) bias_sizes = std::vector<std::int64_t>{gradient.size(1)};
  torch::jit::Stack stack;
  torch::jit::push(stack, gradient, input, weight, bias_sizes, C10_AS_INTARRAYREF_SLOW(stride),
                   C10_AS_INTARRAYREF_SLOW(padding), C10_AS_INTARRAYREF_SLOW(dilation), transposed,
                   C10_AS_INTARRAYREF_SLOW(output_padding), groups.expect_int(),
                   std::vector<bool>{mask[0], mask[1], mask[2]});
  run_on_cpu(op, &stack);
  const std::size_t first = stack.size() - 3;
  return {stack[first].toTensor(), stack[first + 1].toTensor(), stack[first + 2].toTensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

// The layers of the tests that autocast computes in 16 bits.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) { library.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  using at::autocast::CastPolicy;
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(conv1d, lower_precision_fp)
}

// Copies resolve these; LibTorch would resolve them by a copy.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) { library.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, library) { library.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("as_strided", &as_strided);
  library.impl("view", &view);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("resize_", &resize);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("set_.source_Tensor", &set_tensor);
  library.impl("_has_compatible_shallow_copy_type", &has_compatible_type);
  library.impl("_local_scalar_dense", &local_scalar);
  library.impl("record_stream", &record_stream);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  // Those that LibTorch composes of others where a backend has none.
  library.impl("native_layer_norm", torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  library.impl("native_group_norm", torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  library.impl("native_dropout", &native_dropout);
  library.impl("convolution_overrideable", &convolution);
  library.impl("convolution_backward_overrideable", &convolution_backward);
}

}  // namespace penstock::test
