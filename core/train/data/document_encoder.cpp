#include "core/train/data/document_encoder.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace plait {
namespace {

/// Number of tokens of `text` that end within its first `length` bytes.
size_t tokens_before(const Tokenizer& tokenizer, std::string_view text, size_t length,
                     const std::vector<int32_t>& whole) {
  const std::vector<int32_t> before = tokenizer.encode(text.substr(0, length), false);
  const auto differ = std::mismatch(before.begin(), before.end(), whole.begin(), whole.end());
  return static_cast<size_t>(differ.first - before.begin());
}

/// Byte range of an assistant's turn in the rendered conversation.
using Range = std::pair<size_t, size_t>;

Document counted_in(const Tokenizer& tokenizer, const std::string& text, const std::vector<Range>& ranges) {
  Document out{tokenizer.encode(text, false), {}};
  out.counted.assign(out.ids.size(), 0);
  for (const auto& [begin, end] : ranges) {
    const size_t from = tokens_before(tokenizer, text, begin, out.ids),
                 to = tokens_before(tokenizer, text, end, out.ids);
    std::fill(out.counted.begin() + static_cast<std::ptrdiff_t>(from),
              out.counted.begin() + static_cast<std::ptrdiff_t>(std::max(from, to)), uint8_t{1});
  }
  return out;
}

}  // namespace

DocumentEncoder::DocumentEncoder(const Tokenizer& tokenizer, std::optional<int32_t> eos)
    : tokenizer_(tokenizer), eos_(eos ? eos : tokenizer.eos_id()) {
  const std::vector<int32_t> probe = tokenizer.encode("a", true);
  adds_eos_ = eos_ && !probe.empty() && probe.back() == *eos_;
}

std::vector<int32_t> DocumentEncoder::begin(std::string_view text) const {
  std::vector<int32_t> out = tokenizer_.encode(text, true);
  if (adds_eos_) out.pop_back();
  return out;
}

Document DocumentEncoder::part(std::string_view text, bool first, bool last) const {
  Document out{first ? begin(text) : tokenizer_.encode(text, false), {}};
  if (last && eos_) out.ids.push_back(*eos_);
  return out;
}

Document DocumentEncoder::text(std::string_view text) const { return part(text, true, true); }

Document DocumentEncoder::completion(std::string_view prompt, std::string_view completion) const {
  const std::vector<int32_t> asked = begin(prompt);
  Document out{begin(std::string(prompt) + std::string(completion)), {}};
  const bool goes_on = out.ids.size() >= asked.size() && std::equal(asked.begin(), asked.end(), out.ids.begin());
  if (!goes_on) {  // a token of the whole text spans both
    out.ids = asked;
    const std::vector<int32_t> answer = tokenizer_.encode(completion, false);
    out.ids.insert(out.ids.end(), answer.begin(), answer.end());
  }
  if (eos_) out.ids.push_back(*eos_);
  out.counted.assign(out.ids.size(), 1);
  std::fill_n(out.counted.begin(), asked.size(), uint8_t{0});
  return out;
}

std::string DocumentEncoder::render(const std::vector<ChatTurn>& turns, size_t count, std::string_view tools,
                                    bool ask) const {
  std::string messages = "[";
  for (size_t i = 0; i < count; ++i) messages += (i ? "," : "") + turns[i].json;
  return tokenizer_.render_chat({.messages = messages + "]", .tools = tools, .add_generation_prompt = ask});
}

std::vector<Document> DocumentEncoder::chat(const std::vector<ChatTurn>& turns, std::string_view tools,
                                            bool& found) const {
  found = true;
  std::vector<Document> out;
  std::vector<size_t> answers;
  for (size_t i = 0; i < turns.size(); ++i)
    if (turns[i].assistant) answers.push_back(i);
  if (answers.empty()) return out;
  const std::string whole = render(turns, answers.back() + 1, tools, false);
  std::vector<std::pair<std::string, size_t>> alone;  // the conversation up to each answer, and its offset
  std::vector<Range> ranges;
  bool one = true;  // whether all answers appear in the whole as they were given
  try {
    for (size_t i : answers) {
      std::string asked = render(turns, i, tools, true), answered = render(turns, i + 1, tools, false);
      found &= answered.starts_with(asked);
      one &= whole.starts_with(answered);
      ranges.emplace_back(asked.size(), answered.size());
      alone.emplace_back(std::move(answered), asked.size());
    }
  } catch (const Error& error) {
    if (error.code() != Code::invalid_argument) throw;
    found = false;  // the template refuses a prefix of a conversation that it accepts as a whole
  }
  if (!found) out.push_back({tokenizer_.encode(whole, false), {}});
  else if (one) out.push_back(counted_in(tokenizer_, whole, ranges));
  else
    for (const auto& [text, begin] : alone) out.push_back(counted_in(tokenizer_, text, {{begin, text.size()}}));
  return out;
}

}  // namespace plait
