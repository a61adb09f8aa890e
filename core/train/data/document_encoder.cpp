#include "core/train/data/document_encoder.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

/// Number of tokens of `text` that end within its first `length` bytes.
size_t tokens_before(const Tokenizer& tokenizer, std::string_view text, size_t length,
                     const std::vector<int32_t>& whole) {
  const std::vector<int32_t> before = tokenizer.encode(text.substr(0, length), false);
  const auto differ = std::mismatch(before.begin(), before.end(), whole.begin(), whole.end());
  return static_cast<size_t>(differ.first - before.begin());
}

/// Where each token ends in the text, in bytes; empty if tokens are not its bytes one after another.
std::vector<size_t> token_ends(const Tokenizer& tokenizer, std::string_view text, const std::vector<int32_t>& ids) {
  std::vector<size_t> out;
  size_t end = 0;
  for (const int32_t id : ids) {
    const std::string bytes = tokenizer.token_bytes(id);
    if (text.substr(std::min(end, text.size()), bytes.size()) != bytes) return {};
    out.push_back(end += bytes.size());
  }
  return end == text.size() ? out : std::vector<size_t>{};
}

/// Byte range of an assistant's turn in the rendered conversation.
using Range = std::pair<size_t, size_t>;

/// Tokens with a byte within a range count.
Document counted_in(const Tokenizer& tokenizer, const std::string& text, const std::vector<Range>& ranges) {
  Document out{tokenizer.encode(text, false), {}};
  out.counted.assign(out.ids.size(), 0);
  const std::vector<size_t> ends = token_ends(tokenizer, text, out.ids);
  for (const auto& [begin, end] : ranges) {
    size_t from = 0, to = 0;
    if (ends.empty()) {
      from = tokens_before(tokenizer, text, begin, out.ids);
      to = tokens_before(tokenizer, text, end, out.ids);
    } else {
      from = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
      to = static_cast<size_t>(std::lower_bound(ends.begin(), ends.end(), end) - ends.begin());
      to = std::min(to + 1, out.ids.size());
    }
    std::fill(out.counted.begin() + static_cast<std::ptrdiff_t>(from),
              out.counted.begin() + static_cast<std::ptrdiff_t>(std::max(from, to)), uint8_t{1});
  }
  return out;
}

/// Bytes that two texts begin with, whole characters.
size_t common_prefix(std::string_view a, std::string_view b) {
  auto at = static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  while (at > 0 && at < a.size() && (static_cast<unsigned char>(a[at]) & 0xC0) == 0x80) --at;
  return at;
}

constexpr size_t nowhere = std::string_view::npos;

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

ChatText DocumentEncoder::render(const std::vector<ChatTurn>& turns, size_t count, std::string_view tools,
                                 bool ask) const {
  std::string messages = "[";
  for (size_t i = 0; i < count; ++i) messages += (i ? "," : "") + turns[i].json;
  return tokenizer_.render_chat_parts({.messages = messages + "]", .tools = tools, .add_generation_prompt = ask});
}

/// Where the answer of turn `at` begins in `answered`, the conversation up to it; nowhere if the template does not tell.
size_t DocumentEncoder::answer_begin(const std::vector<ChatTurn>& turns, size_t at, std::string_view tools,
                                     std::string_view answered) const {
  const std::string asked = render(turns, at, tools, true).text;
  if (answered.starts_with(asked)) return asked.size();
  // The prompt may begin a thought, which a turn of the past may not have: what two other answers have in common is the header.
  std::vector<ChatTurn> other(turns.begin(), turns.begin() + static_cast<std::ptrdiff_t>(at + 1));
  std::string texts[2];
  for (size_t i = 0; i < 2; ++i) {
    other.back().json = cat(R"({"role":"assistant","content":")", i ? "Y" : "X", "\"}");
    texts[i] = render(other, at + 1, tools, false).text;
  }
  const size_t header = common_prefix(texts[0], texts[1]);
  const bool fits = header < texts[0].size() && answered.starts_with(texts[0].substr(0, header)) &&
                    header > common_prefix(asked, render(turns, at, tools, false).text);
  return fits ? header : nowhere;
}

std::vector<Document> DocumentEncoder::chat(const std::vector<ChatTurn>& turns, std::string_view tools,
                                            ChatNotes& notes) const {
  std::vector<Document> out;
  std::vector<size_t> answers;
  for (size_t i = 0; i < turns.size(); ++i)
    if (turns[i].assistant && turns[i].counted) answers.push_back(i);
  if (answers.empty()) return out;
  ChatText whole = render(turns, answers.back() + 1, tools, false);
  notes.unknown = whole.unknown;
  if (whole.generated) {
    std::vector<Range> kept;
    size_t before = 0;  // marks of the turns so far
    const bool all =
        answers.size() == static_cast<size_t>(std::count_if(turns.begin(), turns.end(),
                                                            [](const ChatTurn& turn) { return turn.assistant; }));
    for (size_t i = 0; i <= answers.back() && !all; ++i) {
      const auto marks = render(turns, i + 1, tools, false).generated;
      const size_t until = std::min(marks ? marks->size() : before, whole.generated->size());
      if (turns[i].counted)
        for (size_t k = before; k < until; ++k) kept.push_back((*whole.generated)[k]);
      before = std::max(before, until);
    }
    out.push_back(counted_in(tokenizer_, whole.text, all ? *whole.generated : kept));
    return out;
  }
  std::vector<std::pair<std::string, size_t>> alone;  // the conversation up to each answer, and its offset
  std::vector<Range> ranges;
  bool one = true;  // whether all answers appear in the whole as they were given
  try {
    for (const size_t i : answers) {
      std::string answered = render(turns, i + 1, tools, false).text;
      const size_t begin = answer_begin(turns, i, tools, answered);
      notes.found &= begin != nowhere;
      one &= whole.text.starts_with(answered);
      ranges.emplace_back(begin, answered.size());
      alone.emplace_back(std::move(answered), begin);
    }
  } catch (const Error& error) {
    if (error.code() != Code::invalid_argument) throw;
    notes.found = false;  // the template refuses a prefix of a conversation that it accepts as a whole
  }
  if (!notes.found) out.push_back({tokenizer_.encode(whole.text, false), {}});
  else if (one) out.push_back(counted_in(tokenizer_, whole.text, ranges));
  else
    for (const auto& [text, begin] : alone) out.push_back(counted_in(tokenizer_, text, {{begin, text.size()}}));
  return out;
}

}  // namespace plait
