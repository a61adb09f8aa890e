// TfIdfVectorizer: how often n-grams of a list occur.
#include <algorithm>

#include "core/base/text.h"
#include "core/ops/base/rows.h"
#include "core/ops/signal/register.h"

namespace plait {

namespace {

/// x [c] or [n, c] -> [.., greatest output index + 1]
void infer_ngrams(InferContext& context) {
  context.set_type(0, DType::f32);
  const std::vector<int64_t> indexes = context.attributes().integers("ngram_indexes");
  if (indexes.empty()) InferContext::fail("attribute \"ngram_indexes\" is empty");
  const auto [least, most] = std::minmax_element(indexes.begin(), indexes.end());
  if (*least < 0 || *most > INT32_MAX)
    InferContext::fail(cat("attribute \"ngram_indexes\" has the entry ", *least < 0 ? *least : *most));
  const Dims* x = context.dims(0);
  if (!x) return;
  if (x->size() == 2) context.set_dims(0, {(*x)[0], Dim(*most + 1)});
  else context.set_dims(0, {Dim(*most + 1)});
}

}  // namespace

void register_ngrams(OpSet& ops) {
  ops.add({.name = "TfIdfVectorizer",
           .inputs = "x",
           .outputs = "y",
           .attributes = {{"max_gram_length", "int", "required"},
                          {"max_skip_count", "int", "required"},
                          {"min_gram_length", "int", "required"},
                          {"mode", "string", "required"},
                          {"ngram_counts", "ints", "required"},
                          {"ngram_indexes", "ints", "required"},
                          {"pool_int64s", "ints", ""},
                          {"pool_strings", "strings", ""},
                          {"weights", "floats", ""}},
           .ranks = "1-2",
           .infer = infer_ngrams,
           .doc = "how often n-grams of a pool occur, or their weights",
           .since = 9});
}

}  // namespace plait
