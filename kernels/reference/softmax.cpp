// Ops on one line of an array at a time, along one axis: Softmax, LogSoftmax, Hardmax, LpNormalization.
#include <algorithm>
#include <span>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/families.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/numbers.h"

namespace plait::reference {
namespace {

struct LineAttributes {
  explicit LineAttributes(const NodeInfo& node)
      : axis(node.attributes.integer("axis", -1)), p(node.attributes.integer("p", 2)) {
    if (p != 1 && p != 2) throw Error(Code::bad_model, cat(node.op, ": p is ", p, ", expected 1 or 2"));
  }
  int64_t axis, p;
};

template <void (*rework)(std::span<double>, const LineAttributes&)>
KernelStatus lines(const KernelCall& call, const LineAttributes& attributes) {
  const TensorView &in = call.inputs[0], &out = call.outputs[0];
  if (in.shape.rank() == 0 || in.elements() == 0) {
    if (in.elements() == 0) return {};
    double value = load_one<double>(in, 0);
    rework({&value, 1}, attributes);
    store_one(out, 0, value);
    return {};
  }
  int axis = positive_axis(attributes.axis, in.shape.rank());
  int64_t size = in.shape[axis], inner = in.shape.elements(axis + 1, in.shape.rank());
  std::vector<double> line(static_cast<size_t>(size));
  for (int64_t i = 0; i < in.elements() / size; ++i) {
    int64_t start = i / inner * size * inner + i % inner;
    if (inner == 1) load(in, start, size, line.data());
    else
      for (int64_t j = 0; j < size; ++j) line[static_cast<size_t>(j)] = load_one<double>(in, start + j * inner);
    rework(line, attributes);
    if (inner == 1) store(out, start, size, line.data());
    else
      for (int64_t j = 0; j < size; ++j) store_one(out, start + j * inner, line[static_cast<size_t>(j)]);
  }
  return {};
}

void softmax(std::span<double> line, const LineAttributes&) {
  double top = *std::max_element(line.begin(), line.end()), sum = 0;
  for (double& x : line) sum += x = std::exp(x - top);
  for (double& x : line) x /= sum;
}

void log_softmax(std::span<double> line, const LineAttributes&) {
  double top = *std::max_element(line.begin(), line.end()), sum = 0;
  for (double x : line) sum += std::exp(x - top);
  for (double& x : line) x = x - top - std::log(sum);
}

void hardmax(std::span<double> line, const LineAttributes&) {  // the first of equal maxima
  auto best = std::max_element(line.begin(), line.end()) - line.begin();
  std::fill(line.begin(), line.end(), 0.0);
  line[static_cast<size_t>(best)] = 1;
}

void lp_normalize(std::span<double> line, const LineAttributes& attributes) {  // a line of zeros is unchanged
  double norm = 0;
  for (double x : line) norm += attributes.p == 1 ? std::fabs(x) : x * x;
  if (attributes.p == 2) norm = std::sqrt(norm);
  for (double& x : line) x = norm == 0 ? 0 : x / norm;
}

}  // namespace

void add_softmax(KernelTable& table) {
  add<lines<softmax>>(table, "Softmax", floats, 0);
  add<lines<log_softmax>>(table, "LogSoftmax", floats, 0);
  add<lines<hardmax>>(table, "Hardmax", floats, 0);
  add<lines<lp_normalize>>(table, "LpNormalization", floats, 0);
}

}  // namespace plait::reference
