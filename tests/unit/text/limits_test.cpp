// What a chat template or a tokenizer.json of a stranger may take: memory, time, and neither the process nor the host's
// thread for longer than its limits.
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "core/base/error.h"
#include "core/base/text.h"
#include "tests/unit/support/machine_load.h"
#include "tests/unit/text/allocation_count.h"
#include "tests/unit/text/tiny_tokenizers.h"

namespace plait::text_test {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// Sanitizers are slower still.
double patience() {
  static const double load = test::machine_load();
  return load * (counts_allocations() ? 1 : 10);
}

struct Outcome {
  Code code = Code::ok;
  std::string message, hint;
  double milliseconds = 0;
  int64_t peak = 0;
};

Outcome outcome_of(const std::function<void()>& body) {
  Outcome out;
  reset_allocation_peak();
  auto start = Clock::now();
  try {
    body();
  } catch (const Error& error) {
    out.code = error.code();
    out.message = error.message();
    out.hint = error.hint();
  }
  out.milliseconds = milliseconds_since(start);
  out.peak = allocation_peak();
  return out;
}

Tokenizer with_template(std::string_view chat_template, TextLimits limits) {
  return Tokenizer::from_bytes({.tokenizer_json = gemma().json(), .chat_template = chat_template}, limits);
}

Outcome render(std::string_view chat_template, TextLimits limits) {
  Tokenizer tokenizer = with_template(chat_template, limits);
  return outcome_of([&] { tokenizer.render_chat({.messages = "[]"}); });
}

/// What a bounded call may hold: its budget, a copy of the result, and what threads and errors take.
int64_t allowance(TextLimits limits) { return static_cast<int64_t>(limits.bytes) * 2 + (4 << 20); }

const char* const start = "{% set ns = namespace(s='ab', l=[1, 2], n=2) %}";

const std::vector<std::string>& growing_templates() {
  static const std::vector<std::string> all = {
      "{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "{% for i in range(100) %}{% set ns.s = ns.s * 3 %}{% endfor %}",
      "{{ ('a' * 1000000) | replace('a', 'b' * 1000000) }}",
      "{{ ('a' * 1000000).replace('', 'b' * 1000000) }}",
      "{% for i in range(100) %}{% set ns.s = (ns.s * 1000) | indent(1000000) %}{% endfor %}",
      "{{ ('a\n' * 1000) | indent(1000000) }}",
      "{{ '{:>100000000000}'.format(1) }}",
      "{{ '%100000000000d' | format(1) }}",
      "{{ [1] | batch(100000000000, 0) | list }}",
      "{{ [1] | slice(100000000000) | list }}",
      "{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}{{ ns.l | list | length }}",
      "{% for i in range(100) %}{% set ns.l = (ns.l + ns.l) | list %}{% endfor %}",
      "{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
      "{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson }}",
      "{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | string | length }}",
      "{% set ns.m = ns.l %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% "
      "endfor %}"
      "{{ ns.l == ns.m }}",
      "{% set ns.m = ns.l %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% "
      "endfor %}"
      "{{ ns.l < ns.m }}",
      "{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ {ns.l: 1} }}",
      "{% set ns.l = {} %}{% for i in range(60) %}{% set ns.l = {'a': ns.l, 'b': ns.l} %}{% endfor %}{{ ns.l | "
      "tojson }}",
      "{{ 'x' in ((range(100000) | list) * 900) }}",
      "{{ (range(100000) | list) * 900 | sum }}",
      "{% for a in range(90000) %}{% for b in range(90000) %}{{ a }}{% endfor %}{% endfor %}",
      "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}{% for i in range(100) %}{% set ns.s = m(ns.s) %}{% endfor %}",
      "{% for i in range(100) %}{% set ns.s = ns.s | join(ns.s) %}{% endfor %}",
      "{% for i in range(100) %}{% set ns.s = ns.s | upper %}{% set ns.s = ns.s + ns.s %}{% endfor "
      "%}",
      "{% set ns.s = 'a' * 3000000 %}" +
          [] {
            std::string out;
            for (int i = 0; i < 4000; ++i) out += "{% if ns.s + 'b' == ns.s + 'c' or 'ab' in ns.s %}{% endif %}";
            return out;
          }(),
      // Without a loop, and nothing is allocated.
      "{% set s = 'a' * 6000000 %}{% set t = s | lower %}" +
          [] {
            std::string out;
            for (int i = 0; i < 8000; ++i) out += "{% if s != t or s|length == 1 %}{% endif %}";
            return out;
          }(),
  };
  return all;
}

TEST(TextLimits, GrowingTemplatesEndWithAnErrorThatSaysWhatToChange) {
  TextLimits limits{16 << 20, 300};
  for (const std::string& text : growing_templates()) {
    Outcome out = render(start + text, limits);
    std::string shown = text.substr(0, 120);
    EXPECT_NE(out.code, Code::ok) << shown;
    EXPECT_NE(out.code, Code::internal) << shown << out.message;
    EXPECT_LT(out.milliseconds, 2000 * patience()) << shown;
    EXPECT_LT(out.peak, allowance(limits)) << shown;
    if (out.code != Code::out_of_memory && out.code != Code::timeout) continue;
    EXPECT_NE(out.message.find("chat_template.jinja"), std::string::npos) << out.message;
    EXPECT_NE(out.hint.find("text_bytes"), std::string::npos) << out.hint;
  }
}

/// An expression of a kind ('s' text, 'l' list, 'n' number) of operations that make more of what they get.
std::string expression(std::mt19937& random, char kind, int depth) {
  auto any = [&](auto... choices) {
    std::string list[] = {choices...};
    return list[random() % sizeof...(choices)];
  };
  if (depth == 0)
    return kind == 's' ? any("ns.s", "'ab'", "'x'") : kind == 'l' ? any("ns.l", "[ns.s]") : any("ns.n", "3", "1000");
  auto text = [&] { return expression(random, 's', depth - 1); };
  auto list = [&] { return expression(random, 'l', depth - 1); };
  auto number = [&] { return expression(random, 'n', depth - 1); };
  if (kind == 'n') {
    return any("(" + text() + ")|length", "(" + list() + ")|length", "(" + number() + "*" + number() + ")",
               "(" + number() + "+" + number() + ")", "(1 if " + text() + "==" + text() + " else " + number() + ")",
               "(1 if " + list() + "==" + list() + " else 7)", "(1 if " + text() + " in " + list() + " else 9)");
  }
  if (kind == 'l') {
    return any("(" + list() + "+" + list() + ")", "(" + list() + "*" + number() + ")",
               "[" + list() + "," + list() + "]", "range([" + number() + ",9999]|min)|list", "(" + text() + ")|list",
               "((" + list() + ")|batch(" + number() + ",0)|list)",
               "((" + list() + ")|slice(" + number() + ",1)|list)", "((" + list() + ")|map('string')|list)",
               "((" + list() + ")|sort|list)", "((" + list() + ")|unique|list)", "(" + text() + ").split('a')");
  }
  return any("(" + text() + "+" + text() + ")", "(" + text() + "~" + list() + ")",
             "(" + text() + "*" + number() + ")", "(" + text() + ")|replace(" + text() + "," + text() + ")",
             "(" + text() + ").replace(" + text() + "," + text() + ")",
             "(" + text() + ")|indent(" + number() + ",true)", "(" + list() + ")|join(" + text() + ")",
             "(" + list() + ")|tojson", "(" + list() + ")|string", "(" + list() + ")|tojson(indent=40)",
             "('%' ~ " + number() + " ~ 's')|format(" + text() + ")", "'{:>50000}'.format(" + text() + ")",
             "('%s%s'|format(" + text() + "," + list() + "))", "(" + text() + ")|upper", "(" + text() + ")[::-1]",
             "(" + list() + ")|pprint");
}

std::string random_template(std::mt19937& random) {
  std::string out = start;
  for (int line = 0; line < 4; ++line) {
    std::string body;
    for (int i = 0; i < 3; ++i) {
      char kind = "sln"[random() % 3];
      std::string value = expression(random, kind, 1 + random() % 3);
      body += random() % 4 ? "{% set ns." + std::string(1, kind) + " = " + value + " %}" : "{{ " + value + " }}";
    }
    bool loops = random() % 2;
    out += loops ? "{% for i in range(" + std::to_string(random() % 60) + ") %}" + body + "{% endfor %}" : body;
  }
  return out + "{{ ns.s }}{{ ns.l == [ns.l] }}";
}

TEST(TextLimits, RandomTemplatesOfGrowingOperationsStayWithinThem) {
  TextLimits limits{8 << 20, 100};
  int ended = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    std::string text = random_template(random);
    Outcome out = render(text, limits);
    EXPECT_NE(out.code, Code::internal) << seed << ": " << text << "\n" << out.message;
    EXPECT_LT(out.milliseconds, 1000 * patience()) << seed << ": " << text;
    EXPECT_LT(out.peak, allowance(limits)) << seed << ": " << text;
    ended += out.code == Code::out_of_memory || out.code == Code::timeout;
  }
  EXPECT_GT(ended, 30) << "the operations do not grow";
}

// What recurses through the deepest value that memory and instructions allow must not run out of stack.
TEST(TextLimits, DeepValuesAreErrorsOrText) {
  for (std::string value : {"[ns.l]", "{'a': ns.l}"}) {
    std::string nest = start + std::string("{% for a in range(20) %}{% for i in range(50000) %}{% set ns.l = ") +
                       value + " %}{% endfor %}{% endfor %}{% set ns.m = ns.l %}";
    for (const char* use : {"{{ ns.l }}", "{{ ns.l == [ns.m] }}", "{{ {ns.l: 1} }}"}) {
      Outcome out = render(nest + use, TextLimits{512 << 20, 20000});
      EXPECT_NE(out.code, Code::internal) << value << use << out.message;
    }
  }
}

TEST(TextLimits, AfterwardsEverythingWorksAsBefore) {
  Tokenizer tokenizer =
      with_template("{% if messages %}{{ 'a' * (messages[0].n * 50000000) }}{% endif %}done", {8 << 20, 1000});
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(outcome_of([&] { tokenizer.render_chat({.messages = R"([{"n":1}])"}); }).code, Code::out_of_memory);
    EXPECT_EQ(tokenizer.render_chat({.messages = "[]"}), "done");
  }
}

TEST(TextLimits, ALongConversationRaisesThem) {
  Tokenizer tokenizer = with_template("{% for m in messages %}{{ m.content | trim }}{% endfor %}", {1 << 20, 1000});
  std::string text;
  while (text.size() < 2 << 20) text += "words and words ";
  text.back() = '.';
  EXPECT_EQ(tokenizer.render_chat({.messages = R"([{"content":")" + text + R"("}])"}).size(), text.size());
  EXPECT_EQ(make(byte_level()).decode(make(byte_level()).encode(text, false)).size(), text.size());
}

/// Keeps this thread, and those that it starts, on one processor.
void stay_on_one_processor() {
  cpu_set_t all, one;
  CPU_ZERO(&all);
  CPU_ZERO(&one);
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
}

// The limit is three times what the call takes by itself. Among six others on one processor it takes seven times as long.
TEST(TextLimits, ABusyMachineEndsNoCall) {
  const char* text = "{% for i in range(1500) %}{% for j in range(99) %}{{ 'a' ~ j }}{% endfor %}{% endfor %}";
  double alone = 1e9;
  for (int round = 0; round < 3; ++round) {
    const Outcome out = render(text, {64 << 20, 60000});
    ASSERT_EQ(out.code, Code::ok) << out.message;
    alone = std::min(alone, out.milliseconds);
  }
  std::atomic<bool> over{false};
  Outcome out;
  std::thread busy([&] {
    stay_on_one_processor();
    std::vector<std::thread> others;
    for (int i = 0; i < 6; ++i)
      others.emplace_back([&] {
        while (!over) continue;
      });
    out = render(text, {64 << 20, static_cast<uint64_t>(3 * alone) + 1});
    over = true;
    for (std::thread& other : others) other.join();
  });
  busy.join();
  EXPECT_EQ(out.code, Code::ok) << out.message;
  EXPECT_GT(out.milliseconds, 2 * alone) << "the machine was not busy";
}

/// How long `body` goes on after another thread cancelled; the best of some, for the machine may be busy.
double time_to_cancel(const Tokenizer& tokenizer, const std::function<void()>& body) {
  double best = 1e9;
  for (int round = 0; round < 5 && best > 100; ++round) {
    std::atomic<double> cancelled_at{0};
    auto start = Clock::now();
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(80));
      cancelled_at = milliseconds_since(start);
      tokenizer.cancel();
    });
    Outcome out = outcome_of(body);
    double ended_at = milliseconds_since(start);
    other.join();
    EXPECT_EQ(out.code, Code::cancelled) << out.message;
    best = std::min(best, ended_at - cancelled_at);
  }
  return best;
}

TEST(TextLimits, CancelEndsTemplatesSoon) {
  TextLimits limits{64 << 20, 60000};
  for (const char* text :
       {"{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l == ns.l and false }}{{ ns.l|string "
        "}}",
        "{% set ns.m = ns.l %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}"
        "{% endfor %}{{ ns.l == ns.m }}",
        "{% set s = 'a' * 9000000 %}{% set t = s | lower %}{% for i in range(9000) %}{% for j in range(99) %}"
        "{% if s != t %}{% endif %}{% endfor %}{% endfor %}"}) {
    Tokenizer tokenizer = with_template(start + std::string(text), limits);
    EXPECT_LT(time_to_cancel(tokenizer, [&] { tokenizer.render_chat({.messages = "[]"}); }), 100 * patience())
        << text;
  }
}

// Wherever a call is ended, in the midst of whatever container that grows, its values are let go in order.
TEST(TextLimits, CallsThatEndAnywhereLeaveNothingBroken) {
  std::string names;
  for (int i = 0; i < 300; ++i) names += "{% set v" + std::to_string(i) + " = messages %}";
  std::string text =
      "{% macro m(x) %}" + names +
      "{{ x }}{% endmacro %}{% for i in range(2000) %}{{ m(i) }}{% set ns = namespace() %}" +
      "{% set ns.a = {'k': i, 'l': [i, {'m': i}]} %}{{ ns.a | tojson }}{{ [3, i, 1] | sort | unique | join }}" +
      names + "{% endfor %}";
  Tokenizer tokenizer = with_template(text, {64 << 20, 60000});
  std::atomic<bool> done{false};
  std::thread other([&] {
    std::mt19937 random(7);
    while (!done) {
      std::this_thread::sleep_for(std::chrono::microseconds(500 + random() % 3000));
      tokenizer.cancel();
    }
  });
  for (int round = 0; round < 400; ++round) {
    Code code = outcome_of([&] { tokenizer.render_chat({.messages = R"([{"role":"user","content":"a"}])"}); }).code;
    EXPECT_EQ(code, Code::cancelled);
  }
  done = true;
  other.join();
}

std::string replaces(int count, const std::string& pattern, int size) {
  std::string step =
      R"({"type":"Replace","pattern":)" + pattern + R"(,"content":")" + std::string(size, 'a') + R"("})";
  std::vector<std::string> steps(count, step);
  return join(steps, ",");
}

TEST(TextLimits, NormalizersThatGrowTextsAreAnError) {
  Parts parts = gemma();
  parts.normalizer = R"({"type":"Sequence","normalizers":[)" + replaces(4, R"({"String":"a"})", 100) + "]}";
  TextLimits limits{16 << 20, 5000};
  Outcome out =
      outcome_of([&] { Tokenizer::from_bytes({.tokenizer_json = parts.json()}, limits).encode("aaaa", false); });
  EXPECT_EQ(out.code, Code::out_of_memory) << out.message;
  EXPECT_NE(out.message.find("tokenizer.json"), std::string::npos) << out.message;
  EXPECT_LT(out.peak, (256 << 20) + allowance(limits));
}

// One match is bounded by the library, at a million steps back; many matches are not.
TEST(TextLimits, ExpressionsThatBacktrackAreAnError) {
  Parts parts = gemma();
  parts.pre_tokenizer = R"({"type":"Split","pattern":{"Regex":"(a*)\\1c|a"},"behavior":"Isolated","invert":false})";
  TextLimits limits{16 << 20, 500};
  Tokenizer tokenizer = Tokenizer::from_bytes({.tokenizer_json = parts.json()}, limits);
  Outcome out = outcome_of([&] { tokenizer.encode(std::string(20000, 'a') + "b", false); });
  EXPECT_TRUE(out.code == Code::timeout || out.code == Code::bad_model) << out.message;
  EXPECT_LT(out.milliseconds, 5000 * patience());
}

TEST(TextLimits, DecodersThatGrowTextsAreAnError) {
  Parts parts = with_decoder(R"({"type":"Sequence","decoders":[)" + replaces(5, R"({"String":"a"})", 100) + "]}");
  TextLimits limits{16 << 20, 5000};
  Tokenizer tokenizer = make(parts);
  std::optional<Tokenizer> bounded;
  Outcome loading = outcome_of([&] { bounded = Tokenizer::from_bytes({.tokenizer_json = parts.json()}, limits); });
  if (!bounded) {
    EXPECT_TRUE(loading.code == Code::out_of_memory || loading.code == Code::bad_model) << loading.message;
    return;
  }
  int32_t id = bounded->piece_to_id("a").value();
  Outcome out = outcome_of([&] { bounded->decode(std::vector<int32_t>{id, id}); });
  EXPECT_EQ(out.code, Code::out_of_memory) << out.message;
  EXPECT_LT(out.peak, allowance(limits));
  TextStream stream = bounded->stream();
  EXPECT_EQ(outcome_of([&] { stream.push(id); }).code, Code::out_of_memory);
}

}  // namespace
}  // namespace plait::text_test
