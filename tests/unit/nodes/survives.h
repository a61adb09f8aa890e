#pragma once
// Graphs and operands made wrong: whatever Plait makes of them, it ends in a result or in an Error.
#include <gtest/gtest.h>

#include <vector>

#include "core/base/error.h"
#include "core/base/packed_list.h"
#include "core/base/strings.h"
#include "core/exec/executor.h"
#include "core/passes/compile.h"
#include "tests/unit/support/models.h"

namespace plait::test {

/// What a host does before it hands strings over.
inline void check_strings(const Program& program, size_t input, const Tensor& tensor) {
  if (tensor.dtype() != DType::string) return;
  const int depth = input < program.input_lists.size() ? program.input_lists[input] : 0;
  check_packed_strings(tensor.view(), tensor.blob()->size() - tensor.offset(), numbers_of_list(tensor.view(), depth).value_or(0));
}

/// Compiles and runs; true when that gave a result. An Error must have a code and a message.
inline bool survives(const Graph& graph, const std::vector<Tensor>& data,
                     const KernelTable& kernels = World::get().kernels) {
  static ThreadPool pool{1};
  try {
    PlainModel model = compile_plain(graph, CompileOptions{World::get().ops, kernels});
    Store store;
    store.load(*model.program, std::vector<int64_t>(static_cast<size_t>(model.program->symbols.size())), &pool);
    Executor executor(model.program, store, pool);
    std::vector<TensorView> inputs;
    for (size_t i = 0; i < data.size(); ++i) {
      check_strings(*model.program, i, data[i]);
      inputs.push_back(data[i].view());
    }
    executor.run(inputs);
    return true;
  } catch (const Error& error) {
    EXPECT_FALSE(error.message().empty());
    EXPECT_NE(error.code(), Code::ok);
    EXPECT_NE(error.code(), Code::internal) << error.message();
    return false;
  }
}

}  // namespace plait::test
