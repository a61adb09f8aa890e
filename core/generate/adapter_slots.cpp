#include "core/generate/adapter_slots.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/constant.h"
#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

uint64_t checksum(const AdapterWeights& weights) {
  auto bytes_of = [](const Tensor& tensor) { return std::span(tensor.data(), static_cast<size_t>(tensor.bytes())); };
  uint32_t out = crc32c(cat(weights.rank, " ", weights.alpha, " ", weights.prefix_tokens()));
  if (weights.prefix_tokens()) out = crc32c(bytes_of(weights.prefix), out);
  for (const auto& [module, pair] : weights.modules) {
    out = crc32c(std::as_bytes(std::span(module)), out);
    for (const Tensor& half : {pair.a, pair.b}) out = crc32c(bytes_of(half), out);
  }
  return out;
}

float scale_of(const AdapterWeights& weights) {
  return static_cast<float>(weights.alpha / static_cast<double>(weights.rank));
}

/// Also multiplies by `factor`.
void check_finite(const std::string& module, const Tensor& half, float factor) {
  const auto* numbers = half.as<float>();
  if (!std::all_of(numbers, numbers + half.elements(), [&](float number) { return std::isfinite(factor * number); }))
    throw Error(Code::bad_model, cat("its ", quote(module), " holds a number that is not finite"),
                "the run that made it may have diverged");
}

}  // namespace

AdapterSlots::AdapterSlots(const Decoder& decoder)
    : decoder_(decoder), slots_(static_cast<size_t>(decoder.adapter_slots)) {}

void AdapterSlots::check(const AdapterWeights& weights) const {
  if (!weights.prefix_tokens()) return check_low_rank(weights);
  check_prefix(weights, decoder_);
  check_finite("prefix", weights.prefix, 1);
}

void AdapterSlots::check_low_rank(const AdapterWeights& weights) const {
  if (slots_.empty())
    throw Error(Code::unsupported, "the generator was created without adapter slots",
                "make it with the option adapter_slots, or give it adapters");
  if (weights.rank > decoder_.adapter_rank)
    throw Error(
        Code::invalid_argument,
        cat("its rank is ", weights.rank, ", and the generator's adapters have at most ", decoder_.adapter_rank),
        "make the generator with a larger adapter_rank");
  for (const auto& [module, pair] : weights.modules) {
    const auto linear = std::find_if(decoder_.adapted.begin(), decoder_.adapted.end(),
                                     [&module = module](const AdaptedLinear& one) { return one.module == module; });
    if (pair.of_table)
      throw Error(Code::unsupported,
                  cat("its ", quote(module), " is of a table, and requests have adapters of products"),
                  "merge it: plait export MODEL --adapter DIR");
    if (linear == decoder_.adapted.end())
      throw Error(Code::invalid_argument, cat("its ", quote(module), " fits no weight that the generator adapts"),
                  decoder_.adapted.empty() ? std::string("the model has no Linear with these names")
                                           : cat("it is of another model, of experts (plait export merges these), or "
                                                 "the generator was made for other "
                                                 "targets (adapter_targets), such as ",
                                                 quote(decoder_.adapted[0].module)));
    if (pair.a.shape() != Shape{weights.rank, linear->k} || pair.b.shape() != Shape{linear->n, weights.rank})
      throw Error(Code::invalid_argument,
                  cat("its ", quote(module), " is ", pair.a.shape().text(), " and ", pair.b.shape().text(),
                      ", the model's weight takes ", Shape{weights.rank, linear->k}.text(), " and ",
                      Shape{linear->n, weights.rank}.text()),
                  "it is of another model");
    check_finite(module, pair.a, 1);
    check_finite(module, pair.b, scale_of(weights));
  }
}

size_t AdapterSlots::free_slot() const {
  std::vector<std::string> names;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    const auto held = slots_[slot].lock();
    if (!held) return slot;
    names.push_back(held->name);
  }
  throw Error(
      Code::overloaded, cat("all ", slots_.size(), " slots are taken: ", quote(join(names, ", "), 1000)),
      "remove an adapter; its slot is free once the requests and kept conversations that use it are gone. Or make "
      "the generator with more adapter_slots");
}

std::shared_ptr<const Adapter> AdapterSlots::take(const std::string& name, const AdapterWeights& weights) {
  check(weights);
  Adapter made{.name = name, .prefix = weights.prefix_tokens(), .number = ++taken_, .contents = checksum(weights)};
  if (made.prefix) {
    std::erase_if(prefixes_, [](const auto& one) { return one.expired(); });
    auto out = std::make_shared<const Adapter>(std::move(made));
    prefixes_.push_back(out);
    return out;
  }
  const size_t slot = free_slot();
  made.slot = static_cast<int32_t>(slot);
  auto out = std::make_shared<const Adapter>(std::move(made));
  slots_[slot] = out;
  return out;
}

std::shared_ptr<const Adapter> AdapterSlots::find(uint64_t contents) const {
  for (const auto* all : {&slots_, &prefixes_})
    for (const auto& one : *all)
      if (auto held = one.lock(); held && held->contents == contents) return held;
  return nullptr;
}

std::pair<Tensor, Tensor> AdapterSlots::rows(size_t index, const AdapterWeights& weights) const {
  const AdaptedLinear& linear = decoder_.adapted[index];
  const int64_t rank = decoder_.adapter_rank, own = weights.rank;
  Tensor a(DType::f32, {rank, linear.k}), b(DType::f32, {linear.n, rank});
  std::memset(a.data(), 0, static_cast<size_t>(a.bytes()));
  std::memset(b.data(), 0, static_cast<size_t>(b.bytes()));
  const auto found = weights.modules.find(linear.module);
  if (found == weights.modules.end()) return {a, b};
  std::memcpy(a.data(), found->second.a.data(), static_cast<size_t>(found->second.a.bytes()));
  const float scale = scale_of(weights);
  for (int64_t row = 0; row < linear.n; ++row)
    for (int64_t j = 0; j < own; ++j)
      b.as<float>()[row * rank + j] = scale * found->second.b.as<float>()[row * own + j];
  return {a, b};
}

Tensor PagesOfPrefix::row(int layer, int64_t page, bool values) const {
  const auto [layers, g, d] = weights_.prefix_shape;
  Tensor wide(DType::f32, values ? Shape{g, page_tokens_, d} : Shape{g, d, page_tokens_});
  std::memset(wide.data(), 0, static_cast<size_t>(wide.bytes()));
  const int64_t first = page * page_tokens_, count = std::min(page_tokens_, weights_.prefix_tokens() - first);
  for (int64_t place = 0; place < count; ++place) {
    const float* from = weights_.prefix.as<float>() + ((first + place) * layers * 2 + 2 * layer + values) * g * d;
    for (int64_t head = 0; head < g; ++head)
      for (int64_t i = 0; i < d; ++i)
        wide.as<float>()[head * d * page_tokens_ + (values ? place * d + i : i * page_tokens_ + place)] =
            from[head * d + i];
  }
  return materialize({{}, std::move(wide), {{RecipeStep::Kind::cast, {}, dtype_}}});
}

}  // namespace plait
