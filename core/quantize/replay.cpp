#include "core/quantize/replay.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/base/thread_pool.h"
#include "core/exec/executor.h"

namespace plait {

Replay::Replay(const Graph& graph, const CompileOptions& compile, std::vector<std::vector<Tensor>> inputs,
               std::span<const ValueId> ends, ThreadPool& pool)
    : graph_(graph), compile_(compile), pool_(pool), producer_(producers(graph)) {
  compile_.log = nullptr;
  compile_.dump = nullptr;
  compile_.progress = nullptr;
  // Sizes are those of the samples: what the file calls them must not contradict.
  for (ValueId id = 0; id < graph_.value_count(); ++id)
    if (!graph_.value(id).constant) graph_.value(id).type.dims.reset();
  for (const std::vector<Tensor>& sample : inputs) {
    auto& kept = kept_.emplace_back();
    for (size_t i = 0; i < sample.size(); ++i) kept.emplace(graph_.inputs[i], sample[i]);
  }
  left_ = needed_by(ends);
}

/// The nodes between what is kept and these values.
std::set<int32_t> Replay::needed_by(std::span<const ValueId> values) const {
  std::set<int32_t> out;
  std::vector<ValueId> todo(values.begin(), values.end());
  while (!todo.empty()) {
    const ValueId id = todo.back();
    todo.pop_back();
    if (id == no_value || kept_.front().contains(id)) continue;
    const int32_t at = producer_[static_cast<size_t>(id)];
    if (at < 0 || !out.insert(at).second) continue;
    const auto& inputs = graph_.nodes[static_cast<size_t>(at)].inputs;
    todo.insert(todo.end(), inputs.begin(), inputs.end());
  }
  return out;
}

/// x^T x as a product of the piece.
ValueId Replay::add_gram(Graph& piece, ValueId x) const {
  const auto add = [&](const char* op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return piece.add_node(op, std::move(inputs), 1, std::move(attributes)).outputs[0];
  };
  if (piece.value(x).type.dtype != DType::f32) {
    Attributes to;
    to.set("to", static_cast<int64_t>(DType::f32));
    x = add("Cast", {x}, std::move(to));
  }
  Attributes last, swapped;
  last.set("axis", int64_t{-1});
  swapped.set("perm", std::vector<int64_t>{1, 0});
  const ValueId rows = add("Flatten", {x}, std::move(last));
  return add("MatMul", {add("Transpose", {rows}, std::move(swapped)), rows});
}

Replay::Piece Replay::piece_for(std::span<const ValueId> values) {
  const std::set<int32_t> run = needed_by(values);
  for (const int32_t at : run) left_.erase(at);
  Piece out;
  out.graph = graph_;
  out.graph.nodes.clear();
  std::set<ValueId> made, read, later;
  for (const int32_t at : run) {
    const Node& node = graph_.nodes[static_cast<size_t>(at)];
    out.graph.nodes.push_back(node);
    read.insert(node.inputs.begin(), node.inputs.end());
    made.insert(node.outputs.begin(), node.outputs.end());
  }
  for (const int32_t at : left_) {
    const auto& inputs = graph_.nodes[static_cast<size_t>(at)].inputs;
    later.insert(inputs.begin(), inputs.end());
  }
  out.graph.inputs.clear();
  out.graph.outputs.clear();
  read.insert(values.begin(), values.end());
  for (auto& [id, tensor] : kept_.front()) {
    if (!read.contains(id)) continue;
    out.inputs.push_back(id);
    out.graph.inputs.push_back(id);
    Value& value = out.graph.value(id);
    value.type = {tensor.dtype(), Dims(tensor.shape().begin(), tensor.shape().end())};
    if (value.name.empty()) value.name = cat("value ", id);
  }
  for (const ValueId id : values) out.graph.outputs.push_back(add_gram(out.graph, id));
  // Products of these values read them too.
  for (const ValueId id : made)
    if (id != no_value && later.contains(id)) out.keeps.push_back(id), out.graph.outputs.push_back(id);
  for (auto& sample : kept_)
    std::erase_if(sample, [&](const auto& one) { return !later.contains(one.first) && !read.contains(one.first); });
  return out;
}

std::vector<Tensor> Replay::advance(std::span<const ValueId> values, LoadProgress* progress) {
  std::vector<Tensor> sums;
  Piece piece = piece_for(values);
  const PlainModel model = compile_plain(std::move(piece.graph), compile_);
  Store store(nullptr, compile_.own_device());
  store.load(*model.program, {}, &pool_);
  Executor executor(model.program, store, pool_);
  for (auto& sample : kept_) {
    if (progress) progress->check();
    std::vector<TensorView> inputs;
    for (const ValueId id : piece.inputs) inputs.push_back(sample.at(id).view());
    executor.run(inputs);
    for (size_t i = 0; i < values.size(); ++i) {
      const TensorView gram = executor.output(static_cast<int>(i));
      if (sums.size() <= i) sums.emplace_back(DType::f32, gram.shape);
      auto *to = sums[i].as<float>(), *from = gram.as<float>();
      for (int64_t j = 0; j < gram.elements(); ++j) to[j] += from[j];
    }
    for (size_t i = 0; i < piece.keeps.size(); ++i) {
      const TensorView view = executor.output(static_cast<int>(values.size() + i));
      sample[piece.keeps[i]] =
          Tensor(view.dtype, view.shape, copy_blob({view.data, static_cast<size_t>(view.bytes())}));
    }
  }
  return sums;
}

void Replay::replace(int32_t at, const Tensor& weight, DType dtype) {
  Node& node = graph_.nodes[static_cast<size_t>(at)];
  const bool table = node.op == "Gather";
  const size_t operand = table ? 0 : 1;
  Constant constant{{}, weight, {}};
  if (!table && node.attributes.integer("transB", 0) == 0) add_step(constant, {RecipeStep::Kind::transpose, {1, 0}});
  if (dtype != weight.dtype()) add_step(constant, {RecipeStep::Kind::cast, {}, dtype});
  node.inputs[operand] = graph_.add_constant(std::move(constant));
  producer_.push_back(-1);
}

}  // namespace plait
