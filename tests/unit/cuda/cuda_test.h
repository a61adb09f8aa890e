#pragma once
// Kernels for CUDA devices, run by fibers on host memory, against the reference.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/launch/register.h"
#include "kernels/reference/reference.h"
#include "tests/unit/support/kernel_test.h"
#include "tests/unit/support/run_kernel.h"

namespace plait::test {

inline const KernelTable& kernels() {
  static const KernelTable table = [] {
    KernelTable made;
    register_reference_kernels(made);
    register_cuda_kernels(made);
    return made;
  }();
  return table;
}

/// Runs what is enqueued at once, with threads in the order of a seed.
class DirectQueue : public cuda::CudaQueue {
 public:
  explicit DirectQueue(uint64_t seed) : seed_(seed) {}
  cuda::Stream stream() const override { return nullptr; }
  cuda::FaultWord* fault_word() const override { return &fault_; }

  int launches = 0;

 private:
  void enqueue(const char* name, cuda::Extent grid, cuda::Extent block, unsigned shared_bytes,
               void** parameters) override {
    ++launches;
    emulated::set_thread_order(seed_);
    for (const emulated::KernelEntry& one : emulated::kernels())
      if (!std::strcmp(one.name, name))
        return one.run({{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_bytes}, parameters);
    ADD_FAILURE() << "no kernel " << name;
  }
  const uint64_t seed_;
  mutable cuda::FaultWord fault_{};
};

/// The first device of the plug-in that PLAIT_TEST_PLUGIN names, on which the tests run then; null without.
inline Device* tested_device() {
  static const std::shared_ptr<Device> device = [] {
    const char* plugin = std::getenv("PLAIT_TEST_PLUGIN");
    return plugin ? cuda::make_cuda_device(cuda::load_cuda(plugin), 0) : nullptr;
  }();
  return device.get();
}

/// One run of an op's kernel for CUDA devices. `status`: what the kernel reports of its data. `ranks`: to which it writes its result too.
inline std::vector<Tensor> run_on_cuda(const std::string& op, const Attributes& attributes,
                                       const std::vector<Tensor>& inputs, const std::vector<OutputType>& outputs,
                                       const std::set<size_t>& constants = {}, uint64_t seed = 0,
                                       KernelStatus* status = nullptr, const cuda::PeerRanks* ranks = nullptr) {
  std::vector<OperandInfo> input_infos, output_infos;
  for (const Tensor& input : inputs)
    input_infos.push_back(
        {input.dtype(), input.present() ? input.shape().rank() : -1, constants.contains(input_infos.size())});
  for (const OutputType& output : outputs)
    output_infos.push_back({output.dtype, output.dtype != DType::none ? output.shape.rank() : -1, false});
  const Kernel* kernel = kernels().find({op, attributes, input_infos, output_infos}, DeviceKind::cuda);
  if (!kernel) throw Error(Code::not_found, cat("no kernel of ", op, " for CUDA devices accepts these operands"));
  if (Device* const device = tested_device())
    return run_kernel(*kernel, attributes, inputs, outputs, 1, status, constants, nullptr, device);
  DirectQueue queue(seed);
  queue.give_ranks(ranks);
  std::vector<Tensor> out = run_kernel(*kernel, attributes, inputs, outputs, 1, nullptr, constants, &queue);
  if (queue.take_ranks()) ADD_FAILURE() << op << " writes to no other ranks";
  if (const cuda::FaultWord& word = *queue.fault_word(); word.code) {
    const KernelStatus found{static_cast<KernelCode>(word.code), word.operand, word.value};
    if (status) *status = found;
    else
      ADD_FAILURE() << op << " reports code " << word.code << " of operand " << word.operand << ", value "
                    << word.value;
  }
  return out;
}

/// The orders of threads in which every kernel is run.
constexpr uint64_t orders[] = {0, 1, 2};

/// A case of a kernel: its op, attributes, types and sizes of operands, and which of them are weights.
using KernelCase = std::pair<std::string, std::string>;  ///< the op, the rest
inline KernelCase kernel_case(const std::string& op, const Attributes& attributes, const std::vector<Tensor>& inputs,
                              const std::vector<OutputType>& outputs, const std::set<size_t>& constants) {
  std::string rest;
  for (const auto& [name, value] : attributes) {
    append(rest, cat(name, "="));
    if (const auto* whole = std::get_if<int64_t>(&value)) append(rest, *whole);
    if (const auto* real = std::get_if<double>(&value)) append(rest, *real);
    if (const auto* text = std::get_if<std::string>(&value)) append(rest, *text);
    if (const auto* list = std::get_if<std::vector<int64_t>>(&value))
      for (const int64_t one : *list) append(rest, cat(one, ","));
    append(rest, ' ');
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    append(rest, inputs[i].present() ? cat(constants.contains(i) ? "w" : "", dtype_name(inputs[i].dtype()),
                                           inputs[i].shape().text(), " ")
                                     : std::string("- "));
  for (const OutputType& output : outputs)
    append(rest, output.dtype == DType::none ? std::string("-") : cat(dtype_name(output.dtype), output.shape.text()));
  return {op, rest};
}

/// The cases that had the reference's results so far, and in which orders of threads (cases_test.cpp).
inline std::map<KernelCase, std::set<uint64_t>>& passed_cases() {
  static std::map<KernelCase, std::set<uint64_t>> cases;
  return cases;
}

/// In each order of threads, the reference's results within rtol and atol; and the same bits in all.
inline void expect_reference(const std::string& op, const Attributes& attributes, const std::vector<Tensor>& inputs,
                             const std::vector<OutputType>& outputs, double rtol, double atol,
                             const std::set<size_t>& constants = {}) {
  const KernelCase one = kernel_case(op, attributes, inputs, outputs, constants);
  const std::vector<Tensor> expected = run_op(kernels(), op, attributes, inputs, outputs, 1, nullptr, "reference");
  std::vector<Tensor> first;
  for (const uint64_t order : orders) {
    SCOPED_TRACE(cat(op, " in order ", order));
    const std::vector<Tensor> actual = run_on_cuda(op, attributes, inputs, outputs, constants, order);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!expected[i].present()) continue;
      expect_near(actual[i], expected[i], rtol, atol);
      if (!first.empty()) expect_equal_bits(actual[i], first[i]);
    }
    if (first.empty()) first = actual;
    if (!testing::Test::HasFailure()) passed_cases()[one].insert(order);
  }
}

/// Lengths around the widths of loads and warps.
constexpr int64_t lengths[] = {1, 7, 8, 9, 64, 65};
/// Relative errors of storing in a type.
inline double rounding(DType dtype) { return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-10 : 1e-5; }
constexpr DType float_types[] = {DType::f32, DType::bf16, DType::f16};

/// Codes of less than a byte: any bytes are some.
inline Tensor codes(DType dtype, const Shape& shape) {
  Tensor out(dtype, shape);
  std::mt19937 random(7);
  for (int64_t i = 0; i < out.bytes(); ++i) out.data()[i] = static_cast<std::byte>(random());
  return out;
}

/// "bf16_65"
struct TypeAndLength {
  template <class Info>
  std::string operator()(const Info& info) const {
    return cat(dtype_name(std::get<0>(info.param)), "_", std::get<1>(info.param));
  }
};

}  // namespace plait::test
