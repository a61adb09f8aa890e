// Prompts of unequal length in one batch, padded, through the graph as written: each row's answer is that of its
// prompt by itself, as it is ONNX Runtime's (the script that makes the fixtures refuses others).
#include "tests/unit/support/zoo.h"

namespace plait::test {
namespace {

/// All prompts of a model as rows of one length.
struct Batch {
  int64_t rows = 0, columns = 0;
  std::vector<int64_t> ids, mask, positions;
  std::vector<int64_t> first;  ///< by row: the column of its first token

  Batch(const std::vector<ZooPrompt>& prompts, bool left) : rows(static_cast<int64_t>(prompts.size())) {
    for (const ZooPrompt& prompt : prompts) columns = std::max(columns, static_cast<int64_t>(prompt.ids.size()));
    for (const ZooPrompt& prompt : prompts) {
      auto length = static_cast<int64_t>(prompt.ids.size());
      first.push_back(left ? columns - length : 0);
      for (int64_t column = 0; column < columns; ++column) {
        int64_t at = column - first.back();
        bool token = at >= 0 && at < length;
        ids.push_back(token ? prompt.ids[static_cast<size_t>(at)] : 0);
        mask.push_back(token);
        // Hugging Face's generate: the running count of tokens less one, and 0 in front of the first.
        positions.push_back(std::max<int64_t>(0, std::min(at, length - 1)));
      }
    }
  }
};

Tensor integers(DType dtype, const Shape& shape, const std::vector<int64_t>& values) {
  Tensor wide = Tensor::of<int64_t>(DType::i64, shape, values);
  if (dtype == DType::boolean) {
    std::vector<uint8_t> bytes(values.begin(), values.end());
    return Tensor::of<uint8_t>(dtype, shape, bytes);
  }
  return materialize({{}, wide, {{RecipeStep::Kind::cast, {}, dtype}}});
}

/// What the program's input is to be, by its name and sizes: the batch behind no past.
Tensor operand(const Graph& graph, const PlainModel& plain, size_t index, const Batch& batch) {
  const Program& program = *plain.program;
  const std::string& name = program.input_names[index];
  const Buffer& buffer = program.buffers[static_cast<size_t>(program.inputs[index])];
  auto named = [&](const char* part) { return name.find(part) != std::string::npos; };
  Shape rows{batch.rows, batch.columns};
  if (named("mask")) return integers(buffer.dtype, rows, batch.mask);
  if (named("position")) return integers(buffer.dtype, rows, batch.positions);
  if (buffer.dims.size() == 2) return integers(buffer.dtype, rows, batch.ids);
  if (buffer.dims.size() < 2) return Tensor(buffer.dtype, buffer.dims.empty() ? Shape{} : Shape{1});
  // Heads of which only the op knows the size: the interface has found it.
  for (const auto& cache : plain.interface.caches) {
    if (graph.value(cache.past).name != name) continue;
    Shape past;
    for (size_t axis = 0; axis < cache.dims.size(); ++axis)
      past.push_back(cache.dims[axis].is_constant() ? cache.dims[axis].constant() : axis == 0 ? batch.rows : 0);
    return Tensor(buffer.dtype, past);
  }
  Shape past;
  for (const Dim& dim : buffer.dims)
    past.push_back(dim.is_constant() ? dim.constant() : past.rank() ? 0 : batch.rows);
  return Tensor(buffer.dtype, past);
}

class Padded : public testing::TestWithParam<ZooModel> {};

TEST_P(Padded, RowsAnswerAsAlone) {
  const ZooModel& model = GetParam();
  const World& world = World::get();
  Batch batch(model.prompts, model.padding == "left");
  Graph graph = imported(model);
  PlainModel plain = compile_plain(graph, world.options());
  ThreadPool pool(2);
  Store store;
  store.load(*plain.program, {}, &pool);
  Executor executor(plain.program, store, pool);
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < plain.program->inputs.size(); ++i) tensors.push_back(operand(graph, plain, i, batch));
  std::vector<TensorView> views;
  for (const Tensor& tensor : tensors) views.push_back(tensor.view());
  executor.run(views);
  TensorView output = executor.output(plain.interface.logits);
  Tensor logits(output.dtype, output.shape, copy_blob({output.data, static_cast<size_t>(output.bytes())}));
  Tensor real = materialize({{}, logits, {{RecipeStep::Kind::cast, {}, DType::f32}}});
  ASSERT_EQ(real.shape().rank(), 3);
  int64_t width = real.shape()[2];
  for (size_t row = 0; row < model.prompts.size(); ++row) {
    std::vector<float> expected = read_npy(model.prompts[row].logits);
    const float* got = real.as<float>() + (static_cast<int64_t>(row) * batch.columns + batch.first[row]) * width;
    SCOPED_TRACE(testing::Message() << "row " << row);
    expect_close(model, {got, expected.size()}, expected);
  }
}

std::vector<ZooModel> paddable() {
  std::vector<ZooModel> out;
  for (const ZooModel& model : zoo())
    if (!model.padding.empty()) out.push_back(model);
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, Padded, testing::ValuesIn(paddable()),
                         [](const auto& info) { return test_name(info.param.name); });

}  // namespace
}  // namespace plait::test
