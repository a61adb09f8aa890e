// Writes a constant back to the file's tensors.
#include <algorithm>
#include <cstring>

#include "core/base/block.h"
#include "core/base/constant.h"
#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

using Kind = RecipeStep::Kind;

Tensor copied(const Tensor& tensor) {
  return Tensor(tensor.dtype(), tensor.shape(), copy_blob({tensor.data(), static_cast<size_t>(tensor.bytes())}));
}

/// Casts move no element: they are undone all at once at the end, so that no other data of the file is rounded.
Constant places_of(const Constant& constant) {
  Constant out{constant.initializer, constant.source, {}, {}};
  for (const RecipeStep& step : constant.steps) {
    if (step.kind == Kind::reinterpret)
      throw Error(Code::unsupported,
                  cat("the weight ", quote(constant.initializer), " is read as bits of another type"));
    if (step.kind != Kind::cast) out.steps.push_back(step);
  }
  for (const Constant& part : constant.parts) out.parts.push_back(places_of(part));
  return out;
}

class Writer {
 public:
  Writer(std::map<std::string, Tensor>& tensors, ThreadPool* pool) : tensors_(tensors), pool_(pool) {}

  /// `recipe` has no casts.
  void write(const Constant& recipe, Tensor value) {
    Constant constant = slices_first(recipe);
    use_tensors(constant);
    while (!constant.steps.empty()) {
      const RecipeStep step = constant.steps.back();
      constant.steps.pop_back();
      value = before(step, constant, std::move(value));
      if (!value.present()) return;
    }
    if (constant.parts.empty()) {
      std::memcpy(constant.source.data(), in_dtype(value, constant.source.dtype()).data(),
                  static_cast<size_t>(constant.source.bytes()));
      return;
    }
    for (size_t i = 0; i < constant.parts.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      const Tensor part = materialize({{}, value, {{Kind::slice, {0, row, row + 1}, {}}}, {}}, pool_);
      write(constant.parts[i], part.reshaped(constant.parts[i].shape()));
    }
  }

 private:
  /// Makes the current tensors the constant's sources.
  void use_tensors(Constant& constant) {
    for (Constant& part : constant.parts) use_tensors(part);
    if (!constant.parts.empty()) return;
    if (constant.initializer.empty())
      throw Error(Code::unsupported, "a weight was computed: no tensor of the file has it");
    auto [place, fresh] = tensors_.try_emplace(constant.initializer);
    if (fresh) place->second = copied(constant.source);
    constant.source = place->second;
  }

  /// `value` before the step that follows `constant`; nothing if it has been written in place.
  Tensor before(const RecipeStep& step, const Constant& constant, Tensor value) {
    switch (step.kind) {
      case Kind::reshape: return value.reshaped(constant.shape());
      case Kind::transpose: {
        RecipeStep back = step;
        for (size_t i = 0; i < step.numbers.size(); ++i)
          back.numbers[static_cast<size_t>(step.numbers[i])] = static_cast<int64_t>(i);
        return materialize({{}, std::move(value), {std::move(back)}, {}}, pool_);
      }
      case Kind::slice: {
        // Only a slice of the tensor itself can be written in place.
        const bool in_place = constant.parts.empty() && constant.steps.empty();
        const Tensor whole = in_place ? constant.source : copied(materialize(constant, pool_));
        Shape begin = whole.shape();
        for (int i = 0; i < begin.rank(); ++i)
          begin[i] = i == static_cast<int>(step.numbers[0]) ? step.numbers[1] : 0;
        put_block(whole.view(), begin, in_dtype(value, whole.dtype()).view());
        return in_place ? Tensor() : whole;
      }
      case Kind::part: break;
      case Kind::cast:
      case Kind::reinterpret: break;  // see places_of
    }
    throw Error(Code::internal, "a step that has no way back");
  }

  Tensor in_dtype(const Tensor& value, DType dtype) const {
    return materialize({{}, value, {{Kind::cast, {}, dtype}}, {}}, pool_);
  }

  std::map<std::string, Tensor>& tensors_;
  ThreadPool* pool_;
};

}  // namespace

void write_back(const Constant& constant, const Tensor& value, std::map<std::string, Tensor>& tensors,
                ThreadPool* pool) {
  if (value.shape() != constant.shape())
    throw Error(Code::invalid_argument,
                cat("a value of sizes ", value.shape().text(), " for a constant of ", constant.shape().text()));
  Writer(tensors, pool).write(places_of(constant), value);
}

}  // namespace plait
