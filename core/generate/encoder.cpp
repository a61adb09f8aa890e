#include "core/generate/encoder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

/// Rows of the table that ids pick from, as they are or in another shape; 0 if none is found.
int64_t table_rows(const Graph& graph, ValueId ids) {
  constexpr std::array<std::string_view, 5> shaping = {"Reshape", "Identity", "Cast", "Squeeze", "Unsqueeze"};
  std::set<ValueId> same{ids};
  for (const Node& node : graph.nodes) {
    if (node.inputs.empty()) continue;
    if (std::find(shaping.begin(), shaping.end(), node.op) != shaping.end() && same.contains(node.inputs[0]))
      same.insert(node.outputs[0]);
    if (node.op != "Gather" || !same.contains(node.inputs[1]) || node.attributes.integer("axis", 0) != 0) continue;
    if (const auto& table = graph.value(node.inputs[0]).constant; table && table->shape().rank() == 2)
      return table->shape()[0];
  }
  return 0;
}

/// Integers [1, n] of any width.
Tensor row_of(DType dtype, std::span<const int32_t> numbers) {
  Tensor out(dtype, {1, static_cast<int64_t>(numbers.size())});
  const auto size = static_cast<size_t>(dtype_bits(dtype)) / 8;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const int64_t number = numbers[i];
    std::memcpy(out.data() + i * size, &number, size);
  }
  return out;
}

Tensor cast(const Tensor& from, DType to) {
  return from.dtype() == to ? from : materialize({{}, from, {{RecipeStep::Kind::cast, {}, to}}});
}

}  // namespace

Tensor ones(DType dtype, int64_t length) {
  const auto count = static_cast<size_t>(length);
  if (dtype == DType::boolean) return Tensor::of<uint8_t>(dtype, {1, length}, std::vector<uint8_t>(count, 1));
  if (is_float(dtype)) return cast(Tensor::of<float>(DType::f32, {1, length}, std::vector<float>(count, 1)), dtype);
  return row_of(dtype, std::vector<int32_t>(count, 1));
}

Encoder::Encoder(const Graph& graph, const CompileOptions& options, int64_t longest, ThreadPool& pool,
                 std::shared_ptr<MemoryBudget> budget, LoadProgress* progress)
    : model_(compile_plain(graph, options)), store_(nullptr, options.own_device()), longest_(longest) {
  std::vector<std::string> others;
  bool found = false;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Value& value = graph.value(graph.inputs[i]);
    const size_t rank = value.type.dims ? value.type.dims->size() : 0;
    const bool floats = is_float(value.type.dtype) && rank >= 2;
    if (value.name.find("mask") != std::string::npos && rank == 2 && !mask_) {
      mask_ = i;
    } else if ((floats || (is_integer(value.type.dtype) && rank == 2)) && !found) {
      found = true;
      main_ = i;
      if (floats) tensor_name_ = value.name == "audio_features" ? "input_features" : value.name;  // two exporters' names
      else vocabulary_ = table_rows(graph, graph.inputs[i]);
    } else {
      others.push_back(value.name);
    }
  }
  if (!found || !others.empty())
    throw Error(Code::unsupported,
                cat("the encoder ", quote(graph.name),
                    found ? cat(" takes more than one input and a mask: ", join(others, ", "))
                          : " has no input of token ids or floats"),
                "run it, and the decoder, through sessions");
  store_.load(*model_.program, std::vector<int64_t>(static_cast<size_t>(model_.program->symbols.size())), &pool,
              progress);
  executor_ = std::make_unique<Executor>(model_.program, store_, pool, std::move(budget));
}

std::shared_ptr<const EncoderInput> Encoder::take_text(std::span<const int32_t> ids) const {
  if (!tensor_name_.empty())
    throw Error(Code::unsupported, cat("the encoder takes the input ", quote(tensor_name_), " and no text"),
                cat("set the option ", tensor_name_, "; the prompt is what the decoder begins with"));
  if (ids.empty())
    throw Error(Code::invalid_argument, "the prompt is empty", "give at least one token; an end of text will do");
  if (longest_ && static_cast<int64_t>(ids.size()) > longest_)
    throw Error(Code::invalid_argument, cat("the prompt has ", ids.size(), " tokens, the encoder takes ", longest_),
                "shorten the prompt");
  for (int32_t id : ids)
    if (id < 0 || (vocabulary_ && id >= vocabulary_))
      throw Error(Code::invalid_argument,
                  cat("token id ", id, " is out of range: the encoder's vocabulary has ", vocabulary_));
  const auto count = static_cast<int64_t>(ids.size());
  const DType dtype = model_.program->buffers[static_cast<size_t>(model_.program->inputs[main_])].dtype;
  auto out = std::make_shared<EncoderInput>(*with_mask(row_of(dtype, ids), count));
  out->tokens = count;
  return out;
}

std::shared_ptr<const EncoderInput> Encoder::take_tensor(const std::string& name, const Tensor& given) const {
  if (name != tensor_name_)
    throw Error(
        Code::invalid_argument,
        tensor_name_.empty() ? cat("the encoder takes text, and option ", name, " is set")
                             : cat("the encoder's input is ", quote(tensor_name_), ", and option ", name, " is set"),
        tensor_name_.empty() ? "leave it out: the prompt is the encoder's text" : cat("set option ", tensor_name_));
  const Buffer& input = model_.program->buffers[static_cast<size_t>(model_.program->inputs[main_])];
  const std::string wanted = plait::text({input.dtype, input.dims}, model_.program->symbols);
  Shape shape = given.shape();
  const auto rank = static_cast<int>(input.dims.size());
  const auto refuse = [&](const std::string& what) {
    throw Error(Code::invalid_argument,
                cat("option ", name, " is ", dtype_name(given.dtype()), given.shape().text(), ": ", what),
                cat("the encoder takes ", wanted));
  };
  if (!is_float(given.dtype())) refuse("expected f32, f16 or bf16");
  if (shape.rank() + 1 == rank) {
    Shape batched{1};
    for (int axis = 0; axis < shape.rank(); ++axis) batched.push_back(shape[axis]);
    shape = batched;
  }
  if (shape.rank() != rank)
    refuse(
        cat("it has ", given.shape().rank(), " dimensions, expected ", rank, ", or ", rank - 1, " without a batch"));
  if (shape[0] != 1) refuse(cat("dimension 0, the batch, is ", shape[0], ", expected 1: each request has its own"));
  for (int axis = 1; axis < rank; ++axis) {
    const Dim& dim = input.dims[static_cast<size_t>(axis)];
    if (dim.is_constant() && dim.constant() != shape[axis])
      refuse(cat("dimension ", axis, " is ", shape[axis], ", expected ", dim.constant()));
    if (shape[axis] < 1) refuse(cat("dimension ", axis, " is ", shape[axis]));
  }
  return with_mask(cast(given.reshaped(shape), input.dtype), shape[1]);
}

/// The mask is ones, since each request runs by itself.
std::shared_ptr<const EncoderInput> Encoder::with_mask(Tensor main, int64_t length) const {
  auto out = std::make_shared<EncoderInput>();
  out->values.resize(model_.program->inputs.size());
  out->values[main_] = std::move(main);
  if (mask_) {
    out->values[*mask_] =
        ones(model_.program->buffers[static_cast<size_t>(model_.program->inputs[*mask_])].dtype, length);
  }
  out->bytes = bytes_of(out->values);
  return out;
}

int64_t Encoder::bytes_of(const std::vector<Tensor>& inputs) const {
  const Program& program = *model_.program;
  std::vector<int64_t> sizes(static_cast<size_t>(program.symbols.size()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Dims& dims = program.buffers[static_cast<size_t>(program.inputs[i])].dims;
    for (size_t axis = 0; axis < dims.size(); ++axis)
      if (const auto symbol = dims[axis].single_symbol())
        sizes[static_cast<size_t>(*symbol)] = inputs[i].shape()[static_cast<int>(axis)];
  }
  int64_t out = 0;
  for (BufferId id : program.outputs) {
    const Buffer& buffer = program.buffers[static_cast<size_t>(id)];
    if (!buffer.sized) continue;
    int64_t elements = 1;
    for (const Dim& dim : buffer.dims) elements *= dim.evaluate(sizes);
    out += packed_bytes(elements, dtype_bits(buffer.dtype));
  }
  return out;
}

std::vector<Tensor> Encoder::run(const EncoderInput& input) {
  std::vector<TensorView> views;
  for (const Tensor& tensor : input.values) views.push_back(tensor.view());
  executor_->run(views);
  std::vector<Tensor> out;
  for (size_t i = 0; i < model_.program->outputs.size(); ++i) {
    const TensorView view = executor_->output(static_cast<int>(i));
    out.emplace_back(view.dtype, view.shape, copy_blob({view.data, static_cast<size_t>(view.bytes())}));
  }
  return out;
}

}  // namespace plait
