#include "core/plan/shape/decoder_shape.h"

#include <algorithm>
#include <set>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

struct SizeRow {
  std::string_view name;
  int64_t DecoderShape::*member;
  bool required;
};
constexpr SizeRow sizes[] = {{"layers", &DecoderShape::layers, true},
                             {"hidden", &DecoderShape::hidden, true},
                             {"heads", &DecoderShape::heads, true},
                             {"kv_heads", &DecoderShape::kv_heads, false},
                             {"head_size", &DecoderShape::head_size, false},
                             {"feed_forward", &DecoderShape::feed_forward, false},
                             {"vocabulary", &DecoderShape::vocabulary, true},
                             {"experts", &DecoderShape::experts, false},
                             {"experts_used", &DecoderShape::experts_used, false},
                             {"experts_every", &DecoderShape::experts_every, false},
                             {"sequence", &DecoderShape::sequence, true}};
constexpr int64_t most = int64_t{1} << 31;  // products of three sizes do not overflow

std::string known_names() {
  std::string out = "family, tied";
  for (const SizeRow& row : sizes) out += cat(", ", row.name);
  return out;
}

[[noreturn]] void fail(const std::string& message, const std::string& hint = {}) {
  throw Error(Code::invalid_argument, cat("the decoder's ", message), hint);
}

void set(DecoderShape& out, std::string_view name, std::string_view value) {
  if (name == "family") {
    if (value != "llama" && value != "gpt") fail(cat("family ", quote(value), " is unknown"), "llama or gpt");
    out.family = value == "gpt" ? DecoderShape::Family::gpt : DecoderShape::Family::llama;
    return;
  }
  if (name == "tied") {
    if (value != "true" && value != "false") fail(cat("field tied is ", quote(value), ", expected true or false"));
    out.tied = value == "true";
    return;
  }
  for (const SizeRow& row : sizes) {
    if (row.name != name) continue;
    int64_t number = 0;
    if (!parse_int(value, number) || number < 1 || number > most)
      fail(cat("field ", name, " is ", quote(value), ", expected a number from 1 to ", most));
    out.*row.member = number;
    return;
  }
  fail(cat("field ", quote(name), " is unknown"), cat("known: ", known_names()));
}

void check(const DecoderShape& shape) {
  if (shape.head_size == 0 && shape.hidden % shape.heads)
    fail(cat("hidden size ", shape.hidden, " does not divide into ", shape.heads, " heads"), "give head_size");
  if (shape.kv_heads > shape.heads || shape.heads % shape.kv_heads)
    fail(cat(shape.heads, " heads do not divide among ", shape.kv_heads, " kv_heads"));
  if (shape.experts_used && !shape.experts)
    fail(cat("experts_used is ", shape.experts_used, ", and it has no experts"));
  if (shape.experts && !shape.experts_used) fail(cat("experts are ", shape.experts, ", and experts_used is missing"));
  if (shape.experts_used > shape.experts)
    fail(cat("experts_used is ", shape.experts_used, " of ", shape.experts, " experts"));
  if (shape.experts_every > 1 && !shape.experts)
    fail(cat("experts_every is ", shape.experts_every, ", and it has no experts"));
  if (shape.layers % shape.experts_every)
    fail(cat(shape.layers, " layers are no multiple of experts_every, which is ", shape.experts_every));
  if (shape.experts && shape.family == DecoderShape::Family::gpt) fail("family gpt has no experts", "family=llama");
  if (shape.head_size % 2 && shape.family == DecoderShape::Family::llama)
    fail(cat("head_size ", shape.head_size, " is odd, and rotary positions turn pairs"));
}

}  // namespace

DecoderShape parse_decoder_shape(std::string_view text) {
  DecoderShape out;
  std::set<std::string, std::less<>> given;
  for (const std::string& part : split(text, ',')) {
    const size_t at = part.find('=');
    if (at == std::string::npos)
      fail(cat("description has ", quote(part), ", expected NAME=VALUE"), cat("known: ", known_names()));
    const std::string name(trimmed(std::string_view(part).substr(0, at)));
    if (!given.insert(name).second) fail(cat("field ", name, " is given twice"));
    set(out, name, trimmed(std::string_view(part).substr(at + 1)));
  }
  if (!given.contains("family")) fail("field family is missing", "llama or gpt");
  for (const SizeRow& row : sizes)
    if (row.required && !given.contains(row.name)) fail(cat("field ", row.name, " is missing"));
  if (!given.contains("tied")) out.tied = out.family == DecoderShape::Family::gpt;
  if (!out.kv_heads) out.kv_heads = out.heads;
  if (!out.feed_forward) out.feed_forward = 4 * out.hidden;
  if (!out.head_size && out.hidden % out.heads == 0) out.head_size = out.hidden / out.heads;
  check(out);
  return out;
}

int64_t DecoderShape::parameters() const {
  const int64_t query = heads * head_size, key = kv_heads * head_size;
  const bool gpt = family == Family::gpt;
  const int64_t mlp = (gpt ? 2 : 3) * hidden * feed_forward;
  const int64_t mixtures = experts ? layers / experts_every : 0, mixture = mlp * experts + experts * hidden;
  const int64_t norms = (gpt ? 4 : 2) * hidden, biases = gpt ? query + 2 * key + 2 * hidden + feed_forward : 0;
  const int64_t layer = 2 * hidden * query + 2 * hidden * key + norms + biases;
  return layers * layer + (layers - mixtures) * mlp + mixtures * mixture + (tied ? 1 : 2) * vocabulary * hidden +
         (gpt ? 2 : 1) * hidden + (gpt ? sequence * hidden : 0);
}

}  // namespace plait
