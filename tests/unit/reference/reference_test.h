#pragma once
// The reference kernels under test.
#include "kernels/reference/reference.h"
#include "tests/unit/support/kernel_test.h"

namespace plait::test {

inline const KernelTable& reference_table() {
  static const KernelTable table = [] {
    KernelTable out;
    register_reference_kernels(out);
    return out;
  }();
  return table;
}

inline std::vector<Tensor> run_reference(std::string_view op, const Attributes& attributes,
                                         const std::vector<Tensor>& inputs, const std::vector<OutputType>& outputs,
                                         int threads = 1, KernelStatus* status = nullptr) {
  return run_op(reference_table(), op, attributes, inputs, outputs, threads, status, "reference");
}

/// The op's only output equals the literal one.
inline void expect_op(std::string_view op, const Attributes& attributes, const std::vector<Tensor>& inputs,
                      const Tensor& expected, double rtol = 1e-6, double atol = 1e-7) {
  SCOPED_TRACE(std::string(op));
  auto outputs = run_reference(op, attributes, inputs, {{expected.dtype(), expected.shape()}});
  expect_near(outputs[0], expected, rtol, atol);
}

inline Tensor f32(const Shape& shape, const std::vector<double>& values) { return tensor(DType::f32, shape, values); }
inline Tensor i64(const Shape& shape, const std::vector<double>& values) { return tensor(DType::i64, shape, values); }
inline Tensor i32(const Shape& shape, const std::vector<double>& values) { return tensor(DType::i32, shape, values); }
inline Tensor ints(const std::vector<int64_t>& values) { return Tensor::of_ints(values); }

/// The status of a call that must be refused.
inline KernelStatus refused(std::string_view op, const Attributes& attributes, const std::vector<Tensor>& inputs,
                            const std::vector<OutputType>& outputs) {
  KernelStatus status;
  run_reference(op, attributes, inputs, outputs, 1, &status);
  return status;
}

}  // namespace plait::test
