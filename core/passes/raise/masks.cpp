// Raise, masks: evaluates an attention's masks at several lengths, and compares with causal attention and a window.
// They may add a slope per head to the scores (ALiBi).
#include <algorithm>
#include <cmath>

#include "core/base/error_kind.h"
#include "core/base/text.h"
#include "core/passes/raise/raiser.h"

namespace plait {
namespace {

/// The combined effect of an attention's masks, for the new tokens and keys [0, past + tokens).
struct MaskAnswer {
  std::vector<uint8_t> seen;   ///< [tokens, keys]
  std::vector<double> slopes;  ///< by head: added to a score per position of its key; empty: none
};

[[noreturn]] void refuse_mask(std::string message) { throw Error(Code::unsupported, std::move(message)); }

class MaskProbe {
 public:
  MaskProbe(const Graph& graph, const PassContext& context, const AttentionMatch& match, const Probe& probe)
      : match_(match),
        probe_(probe),
        keys_(probe.past + probe.tokens),
        columns_(keys_),
        evaluator_(evaluator_at(graph, context, probe)) {
    if (match.cache_key < 0) return;
    const auto& cache = context.decoder.interface.caches[static_cast<size_t>(match.cache_key)];
    if (!cache.length) return;
    columns_ = cache.length;
    if (keys_ > columns_ && !cache.ring) refuse_mask(cat("the buffer holds no more than ", columns_, " tokens"));
  }

  MaskAnswer run() {
    answer_.seen.assign(static_cast<size_t>(probe_.tokens * keys_), 1);
    empty_.assign(static_cast<size_t>(probe_.tokens * std::max<int64_t>(0, columns_ - keys_)), !match_.told_length);
    for (int64_t i = 0; i < probe_.tokens; ++i)  // keys that a ring has dropped
      for (int64_t j = 0; j < keys_ - columns_; ++j) answer_.seen[static_cast<size_t>(i * keys_ + j)] = 0;
    for (int64_t i = 0; i < probe_.tokens; ++i)
      for (int64_t j = 0; j < keys_; ++j) {
        int64_t position = probe_.past + i;
        bool later = match_.causal && j > position, left = match_.window && j <= position - match_.window;
        if (later || left) answer_.seen[static_cast<size_t>(i * keys_ + j)] = 0;
      }
    for (const AttentionMatch::Mask& mask : match_.masks) apply(mask);
    if (std::find(empty_.begin(), empty_.end(), 1) != empty_.end())
      refuse_mask("a mask shows places of the buffer that hold nothing yet");
    if (!added_.empty()) read_slopes();
    return std::move(answer_);
  }

 private:
  void apply(const AttentionMatch::Mask& mask) {
    Tensor tensor = evaluator_.value(mask.value);
    const Shape& shape = tensor.shape();
    int64_t rows = shape.rank() >= 2 ? shape.back(2) : 1, columns = shape.rank() >= 1 ? shape.back(1) : 1;
    if ((rows != probe_.tokens && rows != 1) || (columns != columns_ && columns != 1))
      refuse_mask(cat("a mask of shape ", shape.text(), " for ", probe_.tokens, " tokens and ", keys_, " keys"));
    bool boolean = tensor.dtype() == DType::boolean;
    Tensor real = boolean ? tensor : materialize({{}, tensor, {{RecipeStep::Kind::cast, {}, DType::f32}}});
    int64_t planes = shape.elements() / (rows * columns);
    for (int64_t plane = 0; plane < planes; ++plane)
      for (int64_t i = 0; i < probe_.tokens; ++i)
        for (int64_t j = std::max<int64_t>(0, keys_ - columns_); j < std::max(keys_, columns_); ++j) {
          int64_t column = columns == 1 ? 0 : j % columns_;
          int64_t at = (plane * rows + (rows == 1 ? 0 : i)) * columns + column;
          double value = boolean ? 0 : mask.factor * double{real.as<float>()[at]};
          bool open = boolean ? (tensor.as<uint8_t>()[at] != 0) == mask.keeps : value > -1e4;
          if (j >= keys_) empty_[static_cast<size_t>(i * (columns_ - keys_) + j - keys_)] &= open;
          else if (!open) answer_.seen[static_cast<size_t>(i * keys_ + j)] = 0;
          else if (value != 0) add(planes, plane, i, j, value);
        }
  }

  void add(int64_t planes, int64_t plane, int64_t i, int64_t j, double value) {
    int64_t heads = match_.layer.query_heads;
    if (planes != heads) refuse_mask("a mask adds more than zero to what it lets through");
    if (added_.empty()) added_.resize(static_cast<size_t>(heads * probe_.tokens * keys_));
    added_[static_cast<size_t>((plane * probe_.tokens + i) * keys_ + j)] += value;
  }

  /// The added values must be linear over the visible keys, with one slope in all rows of a head; constants per row
  /// do not change the softmax.
  void read_slopes() {
    int64_t heads = match_.layer.query_heads;
    answer_.slopes.assign(static_cast<size_t>(heads), 0);
    for (int64_t head = 0; head < heads; ++head) {
      double& slope = answer_.slopes[static_cast<size_t>(head)];
      bool known = false;
      for (int64_t i = probe_.tokens; i-- > 0;) {
        const double* row = added_.data() + (head * probe_.tokens + i) * keys_;
        const uint8_t* seen = answer_.seen.data() + i * keys_;
        int64_t first = std::find(seen, seen + keys_, 1) - seen, last = keys_ - 1;
        while (last > first && !seen[last]) --last;
        if (first >= last) continue;
        if (!known) slope = (row[last] - row[first]) / static_cast<double>(last - first);
        known = true;
        double most = std::fabs(row[last] - row[first]) + 1e-6;
        for (int64_t j = first; j <= last; ++j)
          if (seen[j] && std::fabs(row[j] - row[first] - slope * static_cast<double>(j - first)) > 1e-3 * most)
            refuse_mask("a mask adds more than a slope to what it lets through");
      }
    }
  }

  const AttentionMatch& match_;
  const Probe& probe_;
  int64_t keys_, columns_;  ///< existing tokens; columns, which are more in a buffer
  Evaluator evaluator_;
  MaskAnswer answer_;
  std::vector<uint8_t> empty_;  ///< [tokens, columns - keys]: whether unfilled places are visible
  std::vector<double> added_;   ///< [heads, tokens, keys]; empty: none
};

bool is_causal_window(const std::vector<uint8_t>& seen, const Probe& probe, int64_t window) {
  int64_t keys = probe.past + probe.tokens;
  for (int64_t i = 0; i < probe.tokens; ++i)
    for (int64_t j = 0; j < keys; ++j) {
      int64_t position = probe.past + i;
      bool expected = j <= position && (window == 0 || j > position - window);
      if ((seen[static_cast<size_t>(i * keys + j)] != 0) != expected) return false;
    }
  return true;
}

}  // namespace

std::vector<Probe> long_probes(bool cached) {
  std::vector<Probe> out;
  if (cached) {
    for (int64_t past : {70000, 20000, 8000, 4000, 2000, 1000, 500, 120, 30}) out.push_back({past, 1});
  } else {  // the last of many tokens shows it; masks grow quadratically
    for (int64_t tokens : {4200, 1000, 300, 60, 20}) out.push_back({0, tokens});
  }
  return out;
}

bool probe_masks(const Graph& graph, const PassContext& context, AttentionMatch& match, std::string& why) {
  auto answer = [&](const Probe& probe) { return MaskProbe(graph, context, match, probe).run(); };
  // The window is where a single query after a long past begins to see keys. Tables of fixed length in the graph
  // (learned positions, a causal buffer) limit the past: the first length that works is used.
  match.layer.window = 0;
  std::string last_error = "no probe worked";
  bool found = false;
  for (const Probe& probe : long_probes(match.cache_key >= 0)) {
    try {
      MaskAnswer far = answer(probe);
      auto row = far.seen.end() - (probe.past + probe.tokens);
      auto first = std::find(row, far.seen.end(), 1) - row;
      match.layer.window = first == 0 ? 0 : probe.past + probe.tokens - first;
      match.slopes.assign(far.slopes.begin(), far.slopes.end());
      found = true;
      break;
    } catch (const Error& error) {
      if (!is_about_input(error.code())) throw;
      last_error = error.message();
    }
  }
  if (!found) {
    why = cat("its masks could not be evaluated: ", last_error);
    return false;
  }
  int64_t window = match.layer.window;
  std::vector<Probe> probes = {{0, 1}, {0, 6}, {5, 3}, {17, 1}};
  if (window > 3) probes.insert(probes.end(), {{window - 3, 6}, {0, std::min<int64_t>(window + 3, 96)}});
  const auto& caches = context.decoder.interface.caches;
  const int64_t length = match.cache_key < 0 ? 0 : caches[static_cast<size_t>(match.cache_key)].length;
  const bool ring = match.cache_key >= 0 && caches[static_cast<size_t>(match.cache_key)].ring;
  for (const Probe& probe : probes) {
    if (match.cache_key < 0 && probe.past > 0) continue;
    // Several tokens at once that wrap a ring hide keys from the first of them; one at a time they do not, which is
    // the intended meaning. A full buffer takes no more.
    if (length && probe.past + probe.tokens > length && (!ring || probe.tokens > 1)) continue;
    try {
      MaskAnswer near = answer(probe);
      bool alike = near.slopes.empty() || probe.past + probe.tokens < 2 || near.slopes.size() == match.slopes.size();
      for (size_t head = 0; alike && probe.past + probe.tokens > 1 && head < near.slopes.size(); ++head)
        alike = std::fabs(near.slopes[head] - double{match.slopes[head]}) <= 1e-3 * std::fabs(near.slopes[head]);
      if (alike && is_causal_window(near.seen, probe, window)) continue;
      why = cat("its masks are not causal with a window of ", window, " at ", probe.past, " past and ", probe.tokens,
                " new tokens");
    } catch (const Error& error) {
      if (!is_about_input(error.code())) throw;
      why = cat("its masks could not be evaluated: ", error.message());
    }
    return false;
  }
  return true;
}

}  // namespace plait
