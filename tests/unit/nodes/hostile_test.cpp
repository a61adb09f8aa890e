// The standard's cases with their data, attributes and sizes made wrong: whatever Plait makes of them, it ends in a
// result or in an Error. Reads out of bounds show under sanitizers, where this file runs, too.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/text.h"
#include "tests/unit/nodes/cases.h"
#include "tests/unit/nodes/survives.h"

// Sizes that no memory holds come back as an Error, not as the sanitizer's end of the program.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace plait::test {
namespace {

/// Neither huge sizes that a machine could just hold nor loops that end one day: tests are to be quick.
std::vector<int64_t> odd_numbers(bool loops) {
  if (loops) return {-1, INT64_MIN, 7};
  return {-1, 0, 1, 7, -100, INT64_MIN, INT64_MAX};
}

bool is_packed_strings(const Tensor& tensor) {
  if (tensor.dtype() != DType::string) return false;
  try {
    check_packed_strings(tensor.view(), tensor.blob()->size() - tensor.offset());
    return true;
  } catch (const Error&) {  // a list of such tensors
    return false;
  }
}

/// The first elements, in memory of exactly their size: what lies after it is not to be read.
Tensor shortened(const Tensor& whole, const Shape& shape) {
  if (is_packed_strings(whole)) {
    std::vector<std::string_view> texts = packed_texts(whole.view());
    texts.resize(static_cast<size_t>(shape.elements()));
    return packed_strings(shape, texts);
  }
  Tensor out(whole.dtype(), shape);
  std::memcpy(out.data(), whole.data(), static_cast<size_t>(out.bytes()));
  return out;
}

class HostileCase : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    Judged judged = judge(GetParam(), World::get().options());
    if (!judged.graph) return;
    graph_ = std::move(judged.graph);
    data_ = data_sets(GetParam()).at(0).inputs;
    for (const Node& node : graph_->nodes) loops_ |= !node.bodies.empty();
  }
  std::optional<Graph> graph_;
  std::vector<Tensor> data_;
  bool loops_ = false;
};

TEST_P(HostileCase, Numbers) {
  if (!graph_) return;
  for (size_t k = 0; k < data_.size(); ++k) {
    const Tensor& tensor = data_[k];
    if (tensor.dtype() != DType::i64 && tensor.dtype() != DType::i32) continue;
    std::vector<int64_t> places = {0, tensor.elements() - 1};
    for (int64_t place : places)
      for (int64_t number : odd_numbers(loops_)) {
        if (tensor.elements() == 0) continue;
        std::vector<Tensor> data = data_;
        data[k] = Tensor(tensor.dtype(), tensor.shape(), copy_blob({tensor.data(), size_t(tensor.bytes())}));
        if (tensor.dtype() == DType::i64) data[k].as<int64_t>()[place] = number;
        else data[k].as<int32_t>()[place] = static_cast<int32_t>(std::clamp<int64_t>(number, -1000, 1000));
        SCOPED_TRACE(cat("element ", place, " of input ", k, " is ", number));
        survives(*graph_, data);
      }
  }
}

TEST_P(HostileCase, Attributes) {
  if (!graph_) return;
  for (size_t n = 0; n < graph_->nodes.size(); ++n)
    for (const auto& [name, value] : graph_->nodes[n].attributes)
      for (int64_t number : odd_numbers(loops_)) {
        Graph graph = *graph_;
        Attributes& attributes = graph.nodes[n].attributes;
        SCOPED_TRACE(cat("attribute ", name, " has ", number));
        if (std::holds_alternative<int64_t>(value)) {
          attributes.set(name, number);
        } else if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
          std::vector<int64_t> longer = *list, shorter = *list, other = *list;
          longer.push_back(number);
          if (!other.empty()) other.back() = number, shorter.pop_back();
          for (const auto& wrong : {longer, shorter}) {
            attributes.set(name, wrong);
            survives(graph, data_);
          }
          attributes.set(name, other);
        } else {
          continue;
        }
        survives(graph, data_);
      }
}

/// One dimension of one operand is one shorter, first as written, then where the file leaves all sizes open,
/// at last where it leaves open even their number.
TEST_P(HostileCase, Sizes) {
  if (!graph_) return;
  for (int openness = 0; openness < 3; ++openness)
    for (size_t k = 0; k < data_.size(); ++k) {
      Graph graph = *graph_;
      for (ValueId id : graph.inputs) {
        auto& dims = graph.value(id).type.dims;
        if (openness == 1 && dims)
          for (Dim& dim : *dims) dim = Dim::symbol(graph.symbols.fresh("open"));
        if (openness == 2) dims.reset();
      }
      Shape shape = data_[k].shape();
      for (int axis = 0; axis < shape.rank(); ++axis) {
        if (shape[axis] == 0) continue;
        Shape shorter = shape;
        shorter[axis] -= 1;
        std::vector<Tensor> data = data_;
        data[k] = shortened(data_[k], shorter);
        Graph told = graph;
        if (openness == 0) told.value(told.inputs[k]).type.dims = Dims(shorter.begin(), shorter.end());
        SCOPED_TRACE(cat("input ", k, " has ", shorter.text(), " instead of ", shape.text()));
        survives(told, data);
      }
      // Another rank.
      std::vector<Tensor> flat = data_;
      flat[k] = data_[k].reshaped({data_[k].elements()});
      Graph told = graph;
      if (openness < 2) told.value(told.inputs[k]).type.dims = Dims{Dim(data_[k].elements())};
      SCOPED_TRACE(cat("input ", k, " is flat"));
      survives(told, flat);
    }
}

/// Of an op and its body written out the op is enough.
std::vector<std::string> single_ops() {
  std::vector<std::string> out;
  for (const std::string& name : case_names())
    if (name.find("_expanded") == std::string::npos) out.push_back(name);
  return out;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(HostileCase);
INSTANTIATE_TEST_SUITE_P(Standard, HostileCase, testing::ValuesIn(single_ops()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace plait::test
