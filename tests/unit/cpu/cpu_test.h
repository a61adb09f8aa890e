#pragma once
// What the tests of the fast kernels share: a table of reference and fast kernels, tensors at odd addresses.
#include <gtest/gtest.h>

#include "tests/unit/support/isas.h"
#include "tests/unit/support/kernel_test.h"

namespace plait::test {

inline const KernelTable& kernels() {
  static const KernelTable table = [] {
    KernelTable made;
    register_kernels_under_test(made);
    return made;
  }();
  return table;
}

/// The same elements, `bytes` behind an aligned address: weights in a mapped file may start anywhere.
inline Tensor shifted(const Tensor& tensor, int64_t bytes) {
  if (!tensor.present()) return tensor;
  auto blob = make_blob(tensor.bytes() + bytes);
  if (tensor.bytes()) std::memcpy(blob->mutable_data() + bytes, tensor.data(), static_cast<size_t>(tensor.bytes()));
  return Tensor(tensor.dtype(), tensor.shape(), blob, bytes);
}

/// Rows [begin, end) along the first axis.
inline Tensor rows(const Tensor& tensor, int64_t begin, int64_t end) {
  Shape shape = tensor.shape();
  int64_t row_bytes = shape[0] ? tensor.bytes() / shape[0] : 0;
  shape[0] = end - begin;
  Tensor out(tensor.dtype(), shape);
  if (out.bytes()) std::memcpy(out.data(), tensor.data() + begin * row_bytes, static_cast<size_t>(out.bytes()));
  return out;
}

/// Runs `op` on one instruction set and expects the reference's answer within rtol and atol.
inline void expect_reference(const std::string& op, const Attributes& attributes, const std::vector<Tensor>& inputs,
                             const std::vector<OutputType>& outputs, double rtol, double atol, int threads = 1) {
  std::vector<Tensor> expected = run_op(kernels(), op, attributes, inputs, outputs, 1, nullptr, "reference");
  for (const std::string& isa : isas()) {
    // Higher instruction sets need not have every op.
    std::vector<Tensor> actual;
    try {
      actual = run_op(kernels(), op, attributes, inputs, outputs, threads, nullptr, isa);
    } catch (const Error& error) {
      if (error.code() != Code::not_found || isa == "avx2" || isa == "avx512") throw;
      continue;
    }
    SCOPED_TRACE(cat(op, " on ", isa));
    for (size_t i = 0; i < expected.size(); ++i)
      if (expected[i].present()) expect_near(actual[i], expected[i], rtol, atol);
  }
}

}  // namespace plait::test
