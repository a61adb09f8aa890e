#pragma once
// What the tests of kernels share: run one kernel on tensors, make random tensors, compare.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/exec/device.h"
#include "core/exec/kernel.h"

namespace plait::test {

/// An output to be made; DType::none for an unused one.
struct OutputType {
  DType dtype = DType::none;
  Shape shape;
};

/// Element `i` as a double (exact for all but 64-bit integers beyond 2^53).
inline double element(const Tensor& tensor, int64_t i) {
  auto read = [&]<class T>(T value) {
    std::memcpy(&value, tensor.data() + i * static_cast<int64_t>(sizeof value), sizeof value);
    return value;
  };
  switch (tensor.dtype()) {
    case DType::f32: return read(float{});
    case DType::f64: return read(double{});
    case DType::f16: return to_float(read(Float16{}));
    case DType::bf16: return to_float(read(BFloat16{}));
    case DType::i8: return read(int8_t{});
    case DType::i16: return read(int16_t{});
    case DType::i32: return read(int32_t{});
    case DType::i64: return static_cast<double>(read(int64_t{}));
    case DType::u8:
    case DType::boolean: return read(uint8_t{});
    case DType::u16: return read(uint16_t{});
    case DType::u32: return read(uint32_t{});
    case DType::u64: return static_cast<double>(read(uint64_t{}));
    default: throw Error(Code::unsupported, cat("the tests cannot read ", dtype_name(tensor.dtype())));
  }
}

/// Writes element `i`, rounded or cut to the tensor's dtype; narrow integers wrap around, as sums of them do.
inline void set_element(const Tensor& tensor, int64_t i, double value) {
  auto write = [&]<class T>(T out) {
    std::memcpy(tensor.data() + i * static_cast<int64_t>(sizeof out), &out, sizeof out);
  };
  auto whole = [&]() -> int64_t {
    if (value >= 0x1p63) return INT64_MAX;
    return value >= -0x1p63 ? static_cast<int64_t>(value) : INT64_MIN;
  };
  switch (tensor.dtype()) {
    case DType::f32: return write(static_cast<float>(value));
    case DType::f64: return write(value);
    case DType::f16: return write(to_float16(static_cast<float>(value)));
    case DType::bf16: return write(to_bfloat16(static_cast<float>(value)));
    case DType::i8: return write(static_cast<int8_t>(whole()));
    case DType::i16: return write(static_cast<int16_t>(whole()));
    case DType::i32: return write(static_cast<int32_t>(whole()));
    case DType::i64: return write(whole());
    case DType::u8: return write(static_cast<uint8_t>(whole()));
    case DType::boolean: return write(static_cast<uint8_t>(value != 0));
    case DType::u16: return write(static_cast<uint16_t>(whole()));
    case DType::u32: return write(static_cast<uint32_t>(whole()));
    case DType::u64: return write(static_cast<uint64_t>(value));
    default: throw Error(Code::unsupported, cat("the tests cannot write ", dtype_name(tensor.dtype())));
  }
}

/// A tensor of literal values.
inline Tensor tensor(DType dtype, const Shape& shape, const std::vector<double>& values) {
  Tensor out(dtype, shape);
  if (out.elements() != static_cast<int64_t>(values.size()))
    throw Error(Code::invalid_argument, cat(shape.text(), " needs ", out.elements(), " values, got ", values.size()));
  for (size_t i = 0; i < values.size(); ++i) set_element(out, static_cast<int64_t>(i), values[i]);
  return out;
}

/// Uniform in [low, high); for integers each of low .. high - 1. The same seed gives the same tensor everywhere.
inline Tensor random_tensor(DType dtype, const Shape& shape, uint64_t seed, double low = -1, double high = 1) {
  std::mt19937_64 engine(seed);
  Tensor out(dtype, shape);
  for (int64_t i = 0; i < out.elements(); ++i) {
    double value = low + (high - low) * (static_cast<double>(engine() >> 11) * 0x1p-53);
    set_element(out, i, is_float(dtype) ? value : std::floor(value));
  }
  return out;
}

/// Prepares and runs `kernel` once with a pool of `threads`. Fresh outputs are filled with 0xAB bytes beforehand, so
/// that an element the kernel forgets shows. `status` takes the kernel's answer; without it anything but ok fails.
/// `constants`: inputs that are weights, which are packed as the kernel wants them; `queue`: of a kernel that is launched; `device`:
/// runs it, on copies there.
inline std::vector<Tensor> run_kernel(const Kernel& kernel, const Attributes& attributes,
                                      const std::vector<Tensor>& inputs, const std::vector<OutputType>& outputs,
                                      int threads = 1, KernelStatus* status = nullptr,
                                      const std::set<size_t>& constants = {}, Queue* queue = nullptr,
                                      Device* device = nullptr) {
  std::vector<OperandInfo> input_infos, output_infos;
  std::vector<TensorView> input_views, output_views;
  std::vector<Tensor> results, packed;
  for (const Tensor& input : inputs)
    input_infos.push_back(
        {input.dtype(), input.present() ? input.shape().rank() : -1, constants.contains(input_infos.size())});
  for (const OutputType& output : outputs) {
    output_infos.push_back({output.dtype, output.dtype != DType::none ? output.shape.rank() : -1, false});
    results.push_back(output.dtype != DType::none ? Tensor(output.dtype, output.shape) : Tensor());
    if (results.back().bytes()) std::memset(results.back().data(), 0xAB, static_cast<size_t>(results.back().bytes()));
    output_views.push_back(results.back().view());
  }
  NodeInfo node{kernel.op, attributes, input_infos, output_infos};
  std::shared_ptr<const KernelState> state = kernel.prepare ? kernel.prepare(node) : nullptr;
  ThreadPool pool(threads);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const PackedLayout* layout = kernel.pack ? kernel.pack(node, i) : nullptr;
    packed.push_back(layout ? layout->pack(inputs[i], &pool) : inputs[i]);
    input_views.push_back(packed.back().view());
  }
  int64_t bytes = kernel.scratch_bytes ? kernel.scratch_bytes(state.get(), input_views, output_views, threads) : 0;
  auto scratch = make_blob(bytes);
  if (bytes) std::memset(scratch->mutable_data(), 0xFF, static_cast<size_t>(bytes));
  if (device) {
    const auto upload = [&](const std::vector<Tensor>& host, std::vector<TensorView>& views) {
      std::vector<Tensor> out;
      for (size_t i = 0; i < host.size(); ++i) views[i] = out.emplace_back(device->upload(host[i])).view();
      return out;
    };
    const std::vector<Tensor> operands = upload(packed, input_views), made = upload(results, output_views);
    const std::shared_ptr<Blob> workspace = device->take(bytes);
    Queue& own = device->queue(Device::Use::compute);
    Fault fault;
    device->launch(own, kernel,
                   {state.get(),
                    input_views,
                    output_views,
                    pool,
                    {workspace->mutable_data(), static_cast<size_t>(bytes)},
                    &own,
                    &fault,
                    0});
    device->finish(device->record(own));
    for (size_t i = 0; i < made.size(); ++i)
      if (results[i].present()) results[i] = device->fetch(made[i]);
    if (status) *status = fault.status;
    else
      EXPECT_FALSE(fault.found()) << kernel.op << ": operand " << fault.status.operand << ", value "
                                  << fault.status.value;
    return results;
  }
  KernelStatus result = kernel.run(
      {state.get(), input_views, output_views, pool, {scratch->mutable_data(), static_cast<size_t>(bytes)}, queue});
  if (status) *status = result;
  else
    EXPECT_EQ(result.code, KernelCode::ok)
        << kernel.op << ": operand " << result.operand << ", value " << result.value;
  return results;
}

/// As run_kernel, with the kernel of `op` that the table finds for these operands (`isa`, when given, must be its
/// isa: "reference" picks the definition). Throws Error(not_found) when no kernel accepts them.
inline std::vector<Tensor> run_op(const KernelTable& table, std::string_view op, const Attributes& attributes,
                                  const std::vector<Tensor>& inputs, const std::vector<OutputType>& outputs,
                                  int threads = 1, KernelStatus* status = nullptr, std::string_view isa = {}) {
  std::vector<OperandInfo> input_infos, output_infos;
  for (const Tensor& input : inputs)
    input_infos.push_back({input.dtype(), input.present() ? input.shape().rank() : -1, false});
  for (const OutputType& output : outputs)
    output_infos.push_back({output.dtype, output.dtype != DType::none ? output.shape.rank() : -1, false});
  NodeInfo node{op, attributes, input_infos, output_infos};
  for (const auto& kernel : table.all())
    if (kernel->device == DeviceKind::host && kernel->op == op && (isa.empty() || kernel->isa == isa) &&
        (!kernel->accepts || kernel->accepts(node)))
      return run_kernel(*kernel, attributes, inputs, outputs, threads, status);
  throw Error(Code::not_found, cat("no kernel ", isa, " of ", op, " accepts these operands"));
}

/// Same dtype, same shape, and |actual - expected| <= atol + rtol * |expected| everywhere; NaN equals NaN. Reports
/// the worst element.
inline void expect_near(const Tensor& actual, const Tensor& expected, double rtol = 0, double atol = 0) {
  ASSERT_EQ(dtype_name(actual.dtype()), dtype_name(expected.dtype()));
  ASSERT_EQ(actual.shape().text(), expected.shape().text());
  double worst = 0;
  int64_t where = -1;
  for (int64_t i = 0; i < actual.elements(); ++i) {
    double a = element(actual, i), e = element(expected, i);
    if (a == e || (std::isnan(a) && std::isnan(e))) continue;
    double excess = std::fabs(a - e) - (atol + rtol * std::fabs(e));
    if (std::isnan(excess) || std::isinf(a) || std::isinf(e)) excess = INFINITY;
    if (excess > worst) worst = excess, where = i;
  }
  if (where < 0) return;
  ADD_FAILURE() << "element " << where << " of " << actual.shape().text() << ": got " << element(actual, where)
                << ", expected " << element(expected, where) << " (rtol " << rtol << ", atol " << atol << ")";
}

/// Bit for bit the same.
inline void expect_equal_bits(const Tensor& actual, const Tensor& expected) {
  ASSERT_EQ(dtype_name(actual.dtype()), dtype_name(expected.dtype()));
  ASSERT_EQ(actual.shape().text(), expected.shape().text());
  EXPECT_TRUE(actual.bytes() == 0 ||
              std::memcmp(actual.data(), expected.data(), static_cast<size_t>(actual.bytes())) == 0);
}

/// Attributes from a list: attributes({{"axis", int64_t{1}}, {"mode", std::string("wrap")}}).
inline Attributes attributes(std::initializer_list<std::pair<std::string, Attribute>> items) {
  Attributes out;
  for (const auto& [name, value] : items) out.set(name, value);
  return out;
}

}  // namespace plait::test
