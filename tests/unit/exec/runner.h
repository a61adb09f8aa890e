#pragma once
// Graphs in the text form, compiled as they stand and run.
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/exec/executor.h"
#include "core/passes/compile.h"
#include "tests/unit/support/models.h"

namespace plait::test {

struct Runner {
  PlainModel model;
  Store store;
  ThreadPool pool;
  std::unique_ptr<Executor> executor;
  explicit Runner(const std::string& graph, std::shared_ptr<MemoryBudget> budget = nullptr)
      : Runner(parse_graph(graph), std::move(budget)) {}
  explicit Runner(Graph graph, std::shared_ptr<MemoryBudget> budget = nullptr, int threads = 2) : pool(threads) {
    model = compile_plain(std::move(graph), World::get().options());
    store.load(*model.program, std::vector<int64_t>(static_cast<size_t>(model.program->symbols.size())), &pool);
    executor = std::make_unique<Executor>(model.program, store, pool, std::move(budget));
  }
  std::vector<float> run(const std::vector<Tensor>& inputs, int output = 0) {
    std::vector<TensorView> views;
    for (const Tensor& tensor : inputs) views.push_back(tensor.view());
    executor->run(views);
    return values(output);
  }
  /// Of the last run.
  std::vector<float> values(int output) const {
    TensorView view = executor->output(output);
    return {view.as<float>(), view.as<float>() + view.elements()};
  }
  std::string shape(int output) const { return executor->output(output).shape.text(); }
  /// The message of the Error that a run ends with, "" when it ends well.
  std::string refusal(const std::vector<Tensor>& inputs) {
    try {
      run(inputs);
    } catch (const Error& error) {
      return error.message();
    }
    return "";
  }
};

inline Tensor floats(const Shape& shape, std::vector<float> values) {
  return Tensor::of<float>(DType::f32, shape, values);
}
inline Tensor integer(int64_t value) { return Tensor::of<int64_t>(DType::i64, Shape{}, {&value, 1}); }
inline Tensor boolean(bool value) {
  uint8_t byte = value;
  return Tensor::of<uint8_t>(DType::boolean, Shape{}, {&byte, 1});
}

}  // namespace plait::test
