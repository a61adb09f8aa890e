// Data sets: what comes out of each kind of file, and errors that name the place.
#include "core/train/data/dataset.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "core/base/load_progress.h"
#include "core/base/thread_pool.h"
#include "core/train/data/document_encoder.h"
#include "core/train/data/packing.h"
#include "tests/unit/train/train_test.h"

namespace plait {
namespace {

using test::expect_error;
using test::Folder;
using Ids = std::vector<int32_t>;

Ids ids_of(const TrainingSample& sample) { return {sample.ids.begin(), sample.ids.end()}; }
Ids labels_of(const TrainingSample& sample) {
  Ids out;
  for (size_t i = 0; i + 1 < sample.ids.size(); ++i) out.push_back(sample.label(i));
  return out;
}

/// Ids as numpy.save writes them; `version` of the format.
template <class T>
std::string npy(const std::string& descr, const std::string& shape, const std::vector<T>& values, int version = 1,
                const std::string& order = "False") {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  const size_t width = version == 1 ? 2 : 4;
  header.append(63 - (8 + width + header.size()) % 64, ' ');
  header += '\n';
  std::string out("\x93NUMPY");
  out += {static_cast<char>(version), '\0'};
  for (size_t i = 0; i < width; ++i) out += static_cast<char>(header.size() >> 8 * i & 0xFF);
  out += header;
  if (!values.empty()) out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return out;
}

class Data : public testing::Test {
 protected:
  Dataset read(const std::string& name, const std::string& text, DatasetOptions options = {}) {
    if (!options.tokenizer) options.tokenizer = &tokenizer_;
    return Dataset::read(folder_.write(name, text), options);
  }
  Ids encode(const std::string& text) const { return tokenizer_.encode(text, false); }
  /// <s> text </s>
  Ids whole(const std::string& text) const {
    Ids out{*tokenizer_.bos_id()}, middle = encode(text);
    out.insert(out.end(), middle.begin(), middle.end());
    out.push_back(*tokenizer_.eos_id());
    return out;
  }
  /// The text of what counts.
  std::string counted(const TrainingSample& sample) const {
    Ids labels = labels_of(sample);
    std::erase(labels, -1);
    return tokenizer_.decode(labels, false);
  }

  Folder folder_;
  Tokenizer tokenizer_ = test::tokenizer();
};

TEST_F(Data, TextsAreDocumentsWithBosAndEos) {
  const Dataset data =
      read("a.jsonl", "{\"text\": \"the river\", \"id\": 7}\r\n\n  \n{\"text\": \"a \\u00e9\\n b\"}");
  ASSERT_EQ(data.size(), 2);
  EXPECT_EQ(ids_of(data[0]), whole("the river"));
  EXPECT_EQ(ids_of(data[1]), whole("a \u00e9\n b"));
  const Ids ids = ids_of(data[0]);
  EXPECT_EQ(labels_of(data[0]), Ids(ids.begin() + 1, ids.end()));
  EXPECT_THAT(data.where(0), testing::AllOf(testing::HasSubstr("a.jsonl"), testing::EndsWith(": line 1")));
  EXPECT_THAT(data.where(1), testing::EndsWith(": line 4"));
  EXPECT_EQ(data.inputs(), data[0].inputs() + data[1].inputs());
  EXPECT_EQ(data.targets(), data.inputs());
  EXPECT_TRUE(data.notes().empty());
  // An EOS of the caller's choice, and a mark before UTF-8.
  EXPECT_EQ(ids_of(read("b.json", "\xEF\xBB\xBF{\"text\": \"the river\"}", {.eos = 9})[0]).back(), 9);
}

TEST_F(Data, ACompletionCountsAndItsPromptDoesNot) {
  const Dataset data = read("a.jsonl", R"({"prompt": "the river ", "completion": "is wide"}
{"prompt": "", "completion": "x"}
{"prompt": "only", "completion": ""}
{"text": "all of it"})");
  ASSERT_EQ(data.size(), 4);
  EXPECT_EQ(counted(data[0]), "is wide</s>");
  EXPECT_EQ(tokenizer_.decode(ids_of(data[0]), true), "the river is wide");
  EXPECT_EQ(counted(data[1]), "x</s>");
  EXPECT_EQ(counted(data[2]), "</s>");
  EXPECT_EQ(counted(data[3]), "all of it</s>");
  EXPECT_EQ(data.targets(), data[0].targets() + data[1].targets() + data[2].targets() + data[3].targets());
}

/// Whatever the border between prompt and completion, the prompt's ids are those that it has by itself.
TEST_F(Data, APromptHasTheTokensThatItIsAskedWith) {
  const DocumentEncoder encoder(tokenizer_);
  const std::string text = "the river and the sea, where they  meet\n\n in \u00e9t\u00e9";
  int joined = 0;
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    if ((static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) continue;  // within a character
    const std::string prompt = text.substr(0, cut), completion = text.substr(cut);
    const Document document = encoder.completion(prompt, completion);
    const Ids asked = tokenizer_.encode(prompt, true);
    ASSERT_GE(document.ids.size(), asked.size());
    EXPECT_TRUE(std::equal(asked.begin(), asked.end(), document.ids.begin()));
    EXPECT_EQ(std::count(document.counted.begin(), document.counted.end(), 1),
              static_cast<std::ptrdiff_t>(document.ids.size() - asked.size()));
    EXPECT_EQ(tokenizer_.decode(document.ids, true), text);
    joined += document.ids == encoder.text(text).ids;
  }
  EXPECT_GT(joined, 5);
  EXPECT_LT(joined, static_cast<int>(text.size())) << "no border was within a token";
}

constexpr const char* conversation =
    R"({"messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"},)"
    R"( {"role": "assistant", "content": "good day"}, {"role": "user", "content": "more"},)"
    R"( {"role": "assistant", "content": "and a good night"}, {"role": "user", "content": "bye"}]})";

TEST_F(Data, TheAssistantsTurnsCount) {
  const Dataset data = read("chat.jsonl", conversation);
  ASSERT_EQ(data.size(), 1);
  EXPECT_EQ(counted(data[0]), "good day<|end|>\nand a good night<|end|>\n");
  EXPECT_EQ(tokenizer_.decode(ids_of(data[0]), false).find("bye"), std::string::npos)
      << "nothing after the last turn";
  EXPECT_EQ(data[0].ids[0], *tokenizer_.bos_id());
  EXPECT_NE(data[0].ids[1], *tokenizer_.bos_id());
  EXPECT_TRUE(data.notes().empty());
}

/// The last turn has a thought that earlier ones lose, as with templates of models that think.
TEST_F(Data, TurnsThatChangeLaterAreDocumentsOfTheirOwn) {
  const Tokenizer thinking = test::tokenizer(
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.last %}[thought]{% endif %}"
      "{{ m.content }};{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
  const Dataset data = read("chat.jsonl", conversation, {.tokenizer = &thinking});
  ASSERT_EQ(data.size(), 2);
  EXPECT_EQ(counted(data[0]), "[thought]good day;");
  EXPECT_EQ(counted(data[1]), "[thought]and a good night;");
  EXPECT_EQ(tokenizer_.decode(ids_of(data[1]), false),
            "<system>be kind;<user>hello;<assistant>good day;<user>more;<assistant>[thought]and a good night;");
  EXPECT_TRUE(data.notes().empty());
}

/// The answer of a turn begins where its content does, whatever the generation prompt begins for it.
TEST_F(Data, ThePromptMayBeginAThoughtThatTheTurnHasNot) {
  const Tokenizer thinking = test::tokenizer(
      "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}[{{ m.reasoning_content }}]{% endif %}"
      "{{ m.content }};{% endfor %}{% if add_generation_prompt %}<assistant>[{% endif %}");
  EXPECT_EQ(counted(read("chat.jsonl", conversation, {.tokenizer = &thinking})[0]), "good day;and a good night;");
  const Dataset thought = read(
      "chat.jsonl",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "thinking": "c"}]})",
      {.tokenizer = &thinking});
  EXPECT_EQ(counted(thought[0]), "c]b;");
  const Tokenizer other = test::tokenizer(
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}Answer:{% "
      "endif %}");
  const Dataset data = read("chat.jsonl", conversation, {.tokenizer = &other});
  EXPECT_EQ(counted(data[0]), " good day\n and a good night\n");  // of a token within both, all counts
  EXPECT_TRUE(data.notes().empty());
}

/// What transformers' return_assistant_tokens_mask marks: of all blocks, wherever a turn begins.
TEST_F(Data, GenerationBlocksAreWhatCounts) {
  const Tokenizer marked = test::tokenizer(
      "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}{% generation %}{{ m.content }}!{% "
      "endgeneration %}"
      "{% else %}{{ m.content }}{% endif %};\n{% endfor %}{% if add_generation_prompt %}no prefix{% endif %}");
  const Dataset data = read("chat.jsonl", conversation, {.tokenizer = &marked});
  ASSERT_EQ(data.size(), 1);
  EXPECT_EQ(counted(data[0]), " good day! and a good night!");  // of a token within both, all counts
  std::string weighted = conversation;
  weighted.insert(weighted.find("\"good day\"") + 10, ", \"weight\": 0");
  EXPECT_EQ(counted(read("chat.jsonl", weighted, {.tokenizer = &marked})[0]), " and a good night!");
  // In a macro the place of the text is not known: then turns are told apart as without blocks.
  const Tokenizer within = test::tokenizer(
      "{% macro turn(m) %}{% generation %}{{ m.content }}{% endgeneration %}{% endmacro %}"
      "{% for m in messages %}<{{ m.role }}>{{ turn(m) }}{% endfor %}{% if add_generation_prompt %}<assistant>{% "
      "endif %}");
  EXPECT_EQ(counted(read("chat.jsonl", conversation, {.tokenizer = &within})[0]), "good dayand a good night");
}

TEST_F(Data, TurnsOfWeightZeroDoNotCount) {
  std::string weighted = conversation;
  weighted.insert(weighted.find("\"good day\"") + 10, ", \"weight\": 0");
  EXPECT_EQ(counted(read("chat.jsonl", weighted)[0]), "and a good night<|end|>\n");
  weighted.replace(weighted.find("\"weight\": 0"), 11, "\"weight\": 2");
  expect_error([&] { read("chat.jsonl", weighted); }, Code::invalid_argument, "line 1", "weight");
}

TEST_F(Data, MembersKeepTheirOrderAndUnknownOnesAreNamed) {
  const Tokenizer json = test::tokenizer(
      "{{ tools|tojson }}{% for m in messages %}|{{ m.tool_calls|default(m.content)|tojson }}{% endfor %}");
  const Dataset data = read(
      "chat.jsonl",
      R"({"messages": [{"role": "user", "content": "a", "mood": 1}, {"role": "assistant", "content": null,)"
      R"( "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{\"z\": 1, \"a\": 2.0}"}}]}],)"
      R"( "tools": [{"z": 1, "a": 2}]})",
      {.tokenizer = &json});
  EXPECT_EQ(
      tokenizer_.decode(ids_of(data[0]), false),
      R"([{"z": 1, "a": 2}]|"a"|[{"type": "function", "function": {"name": "f", "arguments": {"z": 1, "a": 2.0}}}])");
  ASSERT_FALSE(data.notes().empty());
  EXPECT_THAT(data.notes(), testing::Contains(testing::HasSubstr("\"mood\"")));
}

TEST_F(Data, WhereTurnsCannotBeToldApartAllCounts) {
  // A template that refuses a part of what it takes as a whole.
  const Tokenizer strict = test::tokenizer(
      "{% if messages|length < 5 %}{{ raise_exception('too short') }}{% endif %}{{ messages[2].content }}");
  const Dataset data = read("chat.jsonl", conversation, {.tokenizer = &strict});
  EXPECT_EQ(data[0].targets(), data[0].inputs());
  ASSERT_EQ(data.notes().size(), 1u);
  EXPECT_THAT(data.notes()[0], testing::HasSubstr("1 of 1 conversations"));
}

TEST_F(Data, ToolsReachTheTemplate) {
  const Tokenizer tools = test::tokenizer("{{ tools[0].name }}{% for m in messages %}|{{ m.content }}{% endfor %}");
  const Dataset data =
      read("chat.jsonl",
           R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],)"
           R"( "tools": [{"name": "clock"}]})",
           {.tokenizer = &tools});
  EXPECT_EQ(tokenizer_.decode(ids_of(data[0]), false), "clock|a|b");
  EXPECT_EQ(counted(data[0]), "|b");
}

TEST_F(Data, WhatHasNothingToLearnIsLeftOut) {
  const Dataset data = read("a.jsonl", R"({"messages": [{"role": "user", "content": "a"}]}
{"messages": []}
{"text": "x"})");
  EXPECT_EQ(data.size(), 1);
  const Dataset cut =
      read("b.jsonl", R"({"prompt": "the river and the sea", "completion": "x"})", {.seq = 4, .cut_long = true});
  EXPECT_EQ(cut.targets(), 2);
  ASSERT_EQ(cut.notes().size(), 1u);
  EXPECT_THAT(cut.notes()[0], testing::HasSubstr("left out"));
}

TEST_F(Data, BrokenLinesAreNamed) {
  const std::string good = "{\"text\": \"a\"}\n\n";
  const auto refuses = [&](const std::string& line, const std::string& words) {
    expect_error([&] { read("bad.jsonl", good + line + "\n" + good); }, Code::invalid_argument, "bad.jsonl", "line 3",
                 words);
  };
  refuses("{\"text\": \"a", "not JSON");
  refuses("{\"text\": \"a\"} x", "not JSON");
  refuses("{\"text\": \"\xFF\"}", "not JSON");
  refuses("[1]", "no JSON object");
  refuses("\"a\"", "no JSON object");
  refuses("{\"text\": 3}", "text is number");
  refuses("{\"text\": null}", "one of text");
  refuses("{}", "one of text");
  refuses("{\"prompt\": \"a\"}", "one of text");
  refuses("{\"prompt\": [], \"completion\": \"a\"}", "prompt is array");
  refuses("{\"text\": \"a\", \"messages\": []}", "one of text");
  refuses("{\"messages\": {}}", "messages is no list");
  refuses("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"content\": \"a\"}]}",
          "entry 2 without a role");
  refuses("{\"messages\": [3]}", "entry 1 without a role");
  refuses(std::string(100000, '['), "not JSON");
}

TEST_F(Data, WhatFitsNowhereIsNamed) {
  const std::string text = "{\"text\": \"a\"}\n{\"text\": \"the river and the sea and the river\"}\n";
  expect_error([&] { read("a.jsonl", text, {.seq = 4}); }, Code::invalid_argument, "a.jsonl", "line 2 has 19 tokens");
  expect_error([&] { read("a.jsonl", text, {.vocabulary = 5}); }, Code::invalid_argument, "line 1",
               "vocabulary of 5");
  expect_error([&] { read("a.jsonl", "\n \n"); }, Code::invalid_argument, "a.jsonl", "nothing in it to train on");
  expect_error([&] { read("a.txt", ""); }, Code::invalid_argument, "a.txt", "nothing in it to train on");
  expect_error([&] { read("a.jsonl", text, {.seq = 0}); }, Code::invalid_argument, "seq is 0");
  expect_error([&] { read("a.txt", "a\xFF"); }, Code::invalid_argument, "a.txt");
  expect_error([&] { Dataset::read(folder_.path("none.jsonl"), {}); }, Code::not_found, "none.jsonl");
  expect_error([&] { Dataset::read(folder_.write("b.jsonl", text), {}); }, Code::invalid_argument, "b.jsonl",
               "no tokenizer");
  const Tokenizer strict = test::tokenizer("{{ raise_exception('roles must alternate') }}");
  expect_error([&] { read("c.jsonl", conversation, {.tokenizer = &strict}); }, Code::invalid_argument, "line 1",
               "alternate");
}

TEST_F(Data, ThreadsChangeNothingAndTheFirstErrorIsReported) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += cat("{\"text\": \"the river ", i, " and\\nthe sea\"}\n");
  ThreadPool pool(3);
  LoadProgress progress;
  const Dataset one = read("a.jsonl", text), many = read("a.jsonl", text, {.pool = &pool, .progress = &progress});
  EXPECT_EQ(progress.fraction(), 1);
  ASSERT_EQ(one.size(), 500);
  ASSERT_EQ(many.size(), 500);
  EXPECT_EQ(one.digest(), many.digest());
  for (int64_t i = 0; i < 500; ++i) EXPECT_EQ(ids_of(one[i]), ids_of(many[i]));
  for (int i = 0; i < 20; ++i)
    expect_error([&] { read("b.jsonl", text + "{}\n[]\n" + text, {.pool = &pool}); }, Code::invalid_argument,
                 "line 501");
  LoadProgress cancelled;
  cancelled.cancel();
  expect_error([&] { read("a.jsonl", text, {.progress = &cancelled}); }, Code::cancelled);
}

/// A stream in parts is what it is in one: each id is an input once, and each but the first a label once.
TEST_F(Data, PlainTextIsAStreamInPieces) {
  std::string text;
  std::mt19937 random(3);
  while (text.size() < 600000)
    text += std::vector<std::string>{
        "the river", " and", "\n", "\n\n  ", " the sea.", "\u00e9", "\t", "x\n"}[random() % 8];
  const Ids all = whole(text);
  for (const int64_t seq : {7, 1024, 10000000}) {
    const Dataset data = read("a.txt", text, {.seq = seq});
    EXPECT_EQ(data.size(), (std::ssize(all) - 1 + seq - 1) / seq);
    Ids inputs, labels;
    for (int64_t i = 0; i < data.size(); ++i) {
      const Ids ids = ids_of(data[i]), next = labels_of(data[i]);
      EXPECT_LE(data[i].inputs(), seq);
      inputs.insert(inputs.end(), ids.begin(), ids.end() - 1);
      labels.insert(labels.end(), next.begin(), next.end());
    }
    EXPECT_TRUE(inputs == Ids(all.begin(), all.end() - 1));
    EXPECT_TRUE(labels == Ids(all.begin() + 1, all.end()));
    EXPECT_THAT(data.where(data.size() - 1), testing::EndsWith(cat(": token ", (data.size() - 1) * seq + 1)));
  }
}

TEST_F(Data, LongDocumentsAreCutIfThatIsAllowed) {
  const std::string text = "{\"prompt\": \"the river and\", \"completion\": \"the sea and the river\"}\n";
  const Dataset uncut = read("a.jsonl", text);
  const TrainingSample one = uncut[0];
  const Ids all = ids_of(one), labels = labels_of(one);
  const Dataset data = read("a.jsonl", text, {.seq = 3, .cut_long = true});
  EXPECT_EQ(data.targets(), one.targets());
  Ids joined;
  for (int64_t i = 0; i < data.size(); ++i) {
    const Ids part = labels_of(data[i]);
    joined.insert(joined.end(), part.begin(), part.end());
    EXPECT_THAT(data.where(i), testing::EndsWith(": line 1"));
  }
  // What is left out has nothing that counts.
  EXPECT_TRUE(std::equal(joined.rbegin(), joined.rend(), labels.rbegin()));
  EXPECT_LT(std::ssize(joined), std::ssize(labels) + 1);
}

TEST_F(Data, ArraysOfTokenIdsAreTakenAsTheyAre) {
  const std::vector<int32_t> narrow{1, 2, 3, 4, 5, 6, 7};
  const std::vector<int64_t> wide{1, 2, 3, 4, 5, 6};
  for (int version : {1, 2, 3}) {
    const Dataset stream = read("a.npy", npy("<i4", "(7,)", narrow, version), {.seq = 4});
    ASSERT_EQ(stream.size(), 2);
    EXPECT_EQ(ids_of(stream[0]), (Ids{1, 2, 3, 4, 5}));
    EXPECT_EQ(ids_of(stream[1]), (Ids{5, 6, 7}));
    EXPECT_THAT(stream.where(1), testing::EndsWith(": token 5"));
    const Dataset rows = read("b.data", npy("<i8", "(2, 3)", wide, version), {.seq = 2, .vocabulary = 7});
    ASSERT_EQ(rows.size(), 2);
    EXPECT_EQ(ids_of(rows[1]), (Ids{4, 5, 6}));
    EXPECT_THAT(rows.where(1), testing::EndsWith(": row 2"));
    EXPECT_EQ(rows.targets(), 4);
  }
  const Dataset same = read("c.npy", npy("<i8", "(6,)", wide)),
                also = read("d.npy", npy("<i4", "(6,)", Ids{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(same.digest(), also.digest());
}

TEST_F(Data, ArraysThatAreNoneAreRefused) {
  const std::vector<int32_t> ids{1, 2, 3, 4, 5, 6};
  const auto refuses = [&](const std::string& bytes, Code code, const std::string& words,
                           DatasetOptions options = {}) {
    expect_error([&] { read("bad.npy", bytes, options); }, code, "bad.npy", words);
  };
  const std::string good = npy("<i4", "(2, 3)", ids);
  refuses(good, Code::invalid_argument, "token 2 of row 2 is 5", {.vocabulary = 5});
  refuses(good, Code::invalid_argument, "row 1 has 3 tokens", {.seq = 1});
  refuses(npy("<i4", "(2, 3)", Ids{1, 2, 3, 4, -100, 6}), Code::invalid_argument, "token 2 of row 2 is -100");
  refuses(npy("<i8", "(2,)", std::vector<int64_t>{1, int64_t{1} << 32}), Code::invalid_argument,
          "element 2 is 4294967296");
  refuses(npy("<i4", "(6,)", ids), Code::invalid_argument, "token 5 of the array", {.vocabulary = 5});
  refuses(npy("<i4", "(1, 2, 3)", ids), Code::unsupported, "[1, 2, 3]");
  refuses(npy("<i4", "()", Ids{1}), Code::unsupported, "[]");
  refuses(npy("<f4", "(6,)", ids), Code::unsupported, "f32");
  refuses(npy(">i4", "(6,)", ids), Code::unsupported, ">i4");
  refuses(npy("<i4", "(7,)", ids), Code::bad_model, "differs from its header");
  refuses(npy("<i4", "(-1,)", ids), Code::bad_model, "");
  refuses(npy("<i4", "(4611686018427387904, 4)", ids), Code::bad_model, "");
  refuses(npy("<i4", "x", ids), Code::bad_model, "shape");
  refuses(npy("<i4", "(a,)", ids), Code::bad_model, "shape");
  refuses(npy("<i4", "(0,)", Ids{}), Code::invalid_argument, "nothing in it");
  refuses(npy("<i4", "(1,)", Ids{3}), Code::invalid_argument, "nothing in it");
  refuses(npy("<i4", "(6,)", ids, 4), Code::bad_model, "version");
  for (size_t length = 6; length < good.size(); ++length) refuses(good.substr(0, length), Code::bad_model, "");
}

TEST_F(Data, ADigestTellsDataApart) {
  const std::vector<Document> documents{{{1, 2, 3, 4}, {}}, {{5, 6, 7}, {}}};
  const uint32_t digest = Dataset::of(documents, {}).digest();
  EXPECT_EQ(Dataset::of(documents, {.seq = 5}).digest(), digest);
  EXPECT_NE(Dataset::of(documents, {.seq = 2, .cut_long = true}).digest(), digest);
  EXPECT_NE(Dataset::of({{{1, 2, 3, 5}, {}}, {{5, 6, 7}, {}}}, {}).digest(), digest);
  EXPECT_NE(Dataset::of({{{1, 2, 3}, {}}, {{4, 5, 6, 7}, {}}}, {}).digest(), digest);
  EXPECT_NE(Dataset::of({{{1, 2, 3, 4}, {1, 1, 0, 1}}, {{5, 6, 7}, {}}}, {}).digest(), digest);
  expect_error([&] { Dataset::of(documents, {.vocabulary = 6}); }, Code::invalid_argument, "token 2 of document 2");
  expect_error(
      [&] {
        Dataset::of({{{1, 2, 3}, {1, 1}}}, {});
      },
      Code::invalid_argument, "document 1 has 3 tokens", "2 flags");
}

TEST_F(Data, TokenizersThatEndTextsThemselvesEndThemOnce) {
  std::string json = read_text_file(PLAIT_FIXTURES "/gemma3-standard23/tokenizer.json");
  const auto replace = [&](const std::string& from, const std::string& to) {
    const size_t at = json.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    json.replace(at, from.size(), to);
  };
  replace(R"({"Sequence":{"id":"A","type_id":0}}])",
          R"({"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}}])");
  replace(R"("special_tokens":{)", R"("special_tokens":{"</s>":{"id":"</s>","ids":[2],"tokens":["</s>"]},)");
  const Tokenizer ending = Tokenizer::from_bytes(
      {.tokenizer_json = json, .tokenizer_config = R"({"bos_token":"<s>","eos_token":"</s>"})"});
  ASSERT_EQ(ending.encode("the river", true), whole("the river"));
  const std::string lines = "{\"text\": \"the river\"}\n{\"prompt\": \"the \", \"completion\": \"river\"}\n";
  const Dataset data = read("a.jsonl", lines, {.tokenizer = &ending}), usual = read("a.jsonl", lines);
  EXPECT_EQ(ids_of(data[0]), whole("the river"));
  EXPECT_EQ(data.digest(), usual.digest());
  EXPECT_EQ(ids_of(read("a.txt", "the river", {.tokenizer = &ending})[0]), whole("the river"));
}

}  // namespace
}  // namespace plait
