// Ops on texts. StringSplit and StringNormalizer make arrays of a size that their texts tell: each is read as an op that counts and
// one that makes the array, of which the count is an operand.
#include "core/base/text.h"
#include "core/ops/base/rows.h"
#include "core/ops/strings/register.h"

namespace plait {

namespace {

/// The only element of operand 1, a size.
Dim counted(InferContext& context, std::string_view stem) {
  const Dim* count = single(context.contents(1));
  if (!count) return context.unknown(stem);
  if (count->is_constant() && count->constant() < 0)
    InferContext::fail(cat("the number of ", stem, " is ", count->constant()));
  return *count;
}

void check_split(const InferContext& context) {
  const int64_t most = context.attributes().integer("maxsplit", 0);
  if (most < 0) InferContext::fail(cat("attribute \"maxsplit\" is ", most, ", expected no negative number"));
}

void infer_pieces(InferContext& context) {
  check_split(context);
  context.set_type(0, DType::i64);
  if (const Dims* x = context.dims(0)) context.set_dims(0, *x);
  if (context.wants(1)) context.set(1, DType::i64, {});
}

/// x, most -> [.., most]
void infer_split(InferContext& context) {
  check_split(context);
  context.set_type(0, DType::string);
  const Dims* x = context.dims(0);
  if (!x) return;
  if (x->size() >= static_cast<size_t>(Shape::max_rank)) InferContext::fail(cat("x has rank ", x->size()));
  Dims y = *x;
  y.push_back(counted(context, "pieces"));
  context.set_dims(0, std::move(y));
}

void check_normalizer(const InferContext& context) {
  const std::string action = context.attributes().string("case_change_action", "NONE");
  if (action != "NONE" && action != "LOWER" && action != "UPPER")
    InferContext::fail(cat("attribute \"case_change_action\" is ", quote(action), ", expected NONE, LOWER or UPPER"));
  const Dims* x = context.dims(0);
  if (x && x->size() == 2 && (*x)[0].is_constant() && (*x)[0].constant() != 1)
    InferContext::fail(cat("x has ", (*x)[0].constant(), " rows, expected a list of strings, or one row"));
}

void infer_kept(InferContext& context) {
  check_normalizer(context);
  context.set(0, DType::i64, {});
}

/// x [c] or [1, c], count -> [count] or [1, count]
void infer_normalizer(InferContext& context) {
  check_normalizer(context);
  context.set_type(0, DType::string);
  const Dims* x = context.dims(0);
  if (!x) return;
  Dims y = x->size() == 2 ? Dims{Dim(1)} : Dims{};
  y.push_back(counted(context, "strings"));
  context.set_dims(0, std::move(y));
}

const std::vector<AttributeRow> splitting{{"delimiter", "string", ""}, {"maxsplit", "int", ""}};
const std::vector<AttributeRow> normalizing{{"case_change_action", "string", "NONE"},
                                            {"is_case_sensitive", "int", "0"},
                                            {"locale", "string", ""},
                                            {"stopwords", "strings", ""}};

void register_splits(OpSet& ops) {
  ops.add({.name = "StringSplit",
           .inputs = "x",
           .outputs = "y z",
           .attributes = splitting,
           .doc = "the pieces of each string between delimiters, and how many there are",
           .since = 20,
           .written_as = "plait.StringPieces and plait.StringSplit"});
  ops.add({.name = "plait.StringPieces",
           .inputs = "x",
           .outputs = "counts most?",
           .attributes = splitting,
           .infer = infer_pieces,
           .doc = "how many pieces each string has between delimiters, and the greatest of these numbers"});
  ops.add({.name = "plait.StringSplit",
           .inputs = "x most",
           .outputs = "y",
           .attributes = splitting,
           .ranks = ", 0",
           .infer = infer_split,
           .doc = "the pieces of each string, `most` of them, empty ones at the end"});
}

void register_normalizers(OpSet& ops) {
  ops.add({.name = "StringNormalizer",
           .inputs = "x",
           .outputs = "y",
           .attributes = normalizing,
           .doc = "strings without stop words, in lower or upper case",
           .since = 10,
           .written_as = "plait.StringsKept and plait.StringNormalizer"});
  ops.add({.name = "plait.StringsKept",
           .inputs = "x",
           .outputs = "count",
           .attributes = normalizing,
           .ranks = "1-2",
           .infer = infer_kept,
           .doc = "how many strings are no stop words, at least 1"});
  ops.add(
      {.name = "plait.StringNormalizer",
       .inputs = "x count",
       .outputs = "y",
       .attributes = normalizing,
       .ranks = "1-2, 0",
       .infer = infer_normalizer,
       .doc =
           "the `count` strings that are no stop words, in lower or upper case; one empty string if there is none"});
}

}  // namespace

void register_strings(OpSet& ops) {
  ops.add({.name = "StringConcat",
           .inputs = "x y",
           .outputs = "z",
           .dims = "..., ... -> ...",
           .infer = infer_dtype<DType::string>,
           .doc = "x followed by y",
           .since = 20});
  ops.add({.name = "RegexFullMatch",
           .inputs = "x",
           .outputs = "y",
           .attributes = {{"pattern", "string", ""}},
           .dims = "... -> ...",
           .infer = infer_dtype<DType::boolean>,
           .doc = "whether all of a string matches a regular expression, by Rust's regex crate",
           .since = 20});
  register_splits(ops);
  register_normalizers(ops);
  ops.claim("StringConcat", 20, "T:string");
  ops.claim("RegexFullMatch", 20, "string");
  ops.claim("StringSplit", 20, "string");
  ops.claim("StringNormalizer", 10, "string");
}

}  // namespace plait
