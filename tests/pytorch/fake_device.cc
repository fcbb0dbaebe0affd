// A device of PyTorch that stands for a GPU in tests. Its memory is the host's, but tensors have
// addresses that are not mapped: what takes them for the host's memory dies of SIGSEGV. All
// operations are computed by the CPU on copies.

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace {

constexpr auto kFake = c10::DeviceType::PrivateUse1;
constexpr uintptr_t kNowhere = uintptr_t{1} << 62;  // added to the host's addresses

struct Guard final : c10::impl::NoOpDeviceGuardImpl<kFake> {
  c10::Device exchangeDevice(c10::Device) const override { return {kFake, 0}; }
  c10::Device getDevice() const override { return {kFake, 0}; }
  c10::Stream getStream(c10::Device) const noexcept override { return stream(); }
  c10::Stream getNewStream(c10::Device, int) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream(); }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }

 private:
  static c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, {kFake, 0}); }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

Hooks hooks;
const bool registered = (at::RegisterPrivateUse1HooksInterface(&hooks), true);

void* nowhere(void* memory) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(memory) + kNowhere);
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = std::malloc(bytes == 0 ? 1 : bytes);
    return {nowhere(memory), memory, &std::free, {kFake, 0}};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

Allocator allocator;
REGISTER_ALLOCATOR(kFake, &allocator);

// The same memory as a tensor of the CPU.
at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor.detach();
  auto* begin = static_cast<char*>(tensor.storage().data_ptr().get_context());
  void* data = begin + tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize());
  return at::from_blob(data, tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU).requires_grad(false));
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::Tensor(at::detail::empty_generic(size, &allocator,
                                              c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                              c10::dtype_or_default(type), format));
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device>, std::optional<bool>) {
  return at::Tensor(at::detail::empty_strided_generic(
      size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(type)));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  at::Tensor target = on_host(to);
  target.copy_(on_host(from));
  return to;
}

const at::Tensor& resize_it(const at::Tensor& self, at::IntArrayRef size,
                            std::optional<at::MemoryFormat>) {
  if (self.sizes() == size) return self;
  const size_t bytes = c10::multiply_integers(size) * self.itemsize();
  c10::Storage storage = self.storage();
  if (bytes > storage.nbytes()) {
    c10::DataPtr memory = allocator.allocate(bytes);
    std::memcpy(memory.get_context(), storage.data_ptr().get_context(), storage.nbytes());
    storage.set_data_ptr_noswap(std::move(memory));
    storage.set_nbytes(bytes);
  }
  self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  resize_it(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("resize_", &resize_it);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("view_as_real", &at::native::view_as_real);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>());
}

}  // namespace
