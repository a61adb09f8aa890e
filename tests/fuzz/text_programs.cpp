// Whatever a chat template, a tokenizer.json or a grammar asks for, the call ends within its limits: with text or a mask, or with
// plait::Error. The first byte of an input chooses what the rest is: a template ('t'), a grammar of a kind ('0' to '3'), otherwise a
// tokenizer.json.
#include <chrono>

#include "core/base/mapped_file.h"
#include "core/text/constraint.h"
#include "core/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace {

/// Small enough for what grows to reach them at once.
constexpr plait::TextLimits limits{4 << 20, 100};
/// What a call may take that is bounded by its limits, on a machine that is busy, under sanitizers.
constexpr auto patience = std::chrono::seconds(20);

const std::string& tokenizer_json() {
  static const std::string text = plait::read_text_file(PLAIT_FIXTURES "/gemma3-standard23/tokenizer.json");
  return text;
}

/// Growing operations, for mutations to combine.
const char* const templates[] = {
    "{% set ns = namespace(s='a', l=[1]) %}{% for i in range(9) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(9) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l == ns.l "
    "}}",
    "{% for m in messages %}{{ m.content | replace('h', 'aa') | indent(9) }}{{ m | tojson(indent=2) }}{% endfor %}",
    "{{ [1, 2] | batch(9, 0) | list }}{{ '%99s' | format('a') }}{{ '{:>99}'.format(1) }}{{ 'a' * 99 ~ [1] * 99 }}",
    "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}{{ m(m(m('a'))) }}{{ range(99) | list | length }}",
};

const char* const grammars[] = {
    R"(0{"type":"object","properties":{"a":{"type":"string","pattern":"^(a|b)+$","maxLength":9},"b":{"$ref":"#/$defs/t"}},)"
    R"("required":["a"],"$defs":{"t":{"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#/$defs/t"},"maxItems":99}]}}})",
    R"(0{"allOf":[{"type":["integer","number"],"multipleOf":0.01,"minimum":-1e9},{"enum":[1,2.5,"x"]}],"oneOf":[{"const":1}]})",
    R"(1((a|b){1,99}c?){2,9}|[^x]*\d+\p{Greek})",
    "2start: a b*\na: \"x\" | \"y\" a\nb: /[0-9]{1,9}/ | %json {\"type\": \"boolean\"}\n%ignore / +/",
    R"(3["a", "ab", "abc\n"])",
};

/// Some tokens that the grammar allows, one after the other.
void follow(const plait::Tokenizer& tokenizer, plait::GrammarKind kind, std::string_view text) {
  plait::Constraint state = plait::Grammar::compile(tokenizer, kind, text)->start();
  for (int step = 0; step < 12; ++step) {
    const plait::NextTokens next = state.next();
    if (next.ended) return;
    int32_t id = next.forced.empty() ? -1 : next.forced[0];
    for (int32_t other = step * 7; id < 0 && other < step * 7 + 32 * static_cast<int32_t>(next.mask.size());
         ++other) {
      const int32_t one = other % (32 * static_cast<int32_t>(next.mask.size()));
      if (next.mask[static_cast<size_t>(one) / 32] >> (one % 32) & 1) id = one;
    }
    if (id < 0 || state.commit(id)) return;
  }
}

}  // namespace

std::vector<std::string> plait::fuzz::seeds() {
  std::vector<std::string> out;
  for (const char* text : templates) out.push_back(std::string("t") + text);
  for (const char* text : grammars) out.emplace_back(text);
  out.push_back(
      R"(j{"version":"1.0","added_tokens":[],"normalizer":{"type":"Sequence","normalizers":[)"
      R"({"type":"Replace","pattern":{"String":"a"},"content":"aaaa"},{"type":"Replace","pattern":{"Regex":"a+"},"content":"aa"}]},)"
      R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?=a)a+|b"},"behavior":"Isolated","invert":false},)"
      R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"b","type_id":0}},)"
      R"({"Sequence":{"id":"A","type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],)"
      R"("special_tokens":{"b":{"id":"b","ids":[1],"tokens":["b"]}}},)"
      R"("decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"a"},"content":"aa"},{"type":"Fuse"}]},)"
      R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"aa":2},"merges":[["a","a"]],"unk_token":"b"}})");
  return out;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace plait;
  if (size == 0) return 0;
  std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  bool is_template = data[0] == 't';
  auto start = std::chrono::steady_clock::now();
  try {
    if (data[0] >= '0' && data[0] <= '3') {
      static const Tokenizer fixed = Tokenizer::from_bytes({tokenizer_json(), {}, {}, {}});
      follow(fixed, static_cast<GrammarKind>(data[0] - '0'), text);
    } else if (is_template) {
      Tokenizer tokenizer = Tokenizer::from_bytes({tokenizer_json(), {}, text, {}}, limits);
      tokenizer.render_chat({R"([{"role":"user","content":"hello"},{"role":"assistant","content":"a"}])"});
    } else {
      Tokenizer tokenizer = Tokenizer::from_bytes({text, {}, {}, {}}, limits);
      auto ids = tokenizer.encode("aab hello\n123", true);
      TextStream stream = tokenizer.stream();
      for (int32_t id : ids) stream.push(id);
      tokenizer.decode(ids, false);
    }
    ++fuzz::accepted;
  } catch (const Error& error) {
    fuzz::check_error(error);
  }
  if (std::chrono::steady_clock::now() - start > patience) {
    std::fprintf(stderr, "it took longer than its limits\n");
    std::abort();
  }
  return 0;
}
