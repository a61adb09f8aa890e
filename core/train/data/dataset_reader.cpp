#include "core/train/data/dataset.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/base/function_ref.h"
#include "core/base/load_progress.h"
#include "core/base/mapped_file.h"
#include "core/base/npy.h"
#include "core/base/text.h"
#include "core/base/thread_pool.h"
#include "core/train/data/dataset_builder.h"

namespace plait {
namespace {

using Json = nlohmann::ordered_json;  // templates write tools and arguments in the order of their members

constexpr size_t batch_bytes = size_t{4} << 20;   // of text tokenized between two progress reports
constexpr size_t part_bytes = size_t{128} << 10;  // of plain text that one thread tokenizes at once

/// A numbered line of the file, or a part of a plain text.
struct Span {
  std::string_view text;
  int64_t line = 0;
};

/// An encoded span: documents, or why there are none.
struct Encoded {
  std::vector<Document> documents;
  std::optional<ChatNotes> notes;  ///< of a conversation
  std::exception_ptr error;
};

/// The member as text; null if absent.
const std::string* text_member(const Json& object, const char* key) {
  auto found = object.find(key);
  if (found == object.end() || found->is_null()) return nullptr;
  if (!found->is_string())
    throw Error(Code::invalid_argument, cat("field ", key, " is ", found->type_name(), ", not a string"));
  return found->get_ptr<const std::string*>();
}

std::vector<ChatTurn> turns_of(const Json& messages) {
  auto bad = [](std::string_view what) { return Error(Code::invalid_argument, cat("field messages ", what)); };
  if (!messages.is_array()) throw bad("is no list");
  std::vector<ChatTurn> out;
  for (const Json& message : messages) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      throw bad(cat("has an entry ", out.size() + 1, " without a role"));
    if (const auto content = message.find("content"); content != message.end() && content->is_array())
      for (const Json& part : *content) {
        const std::string type = part.is_object() ? part.value("type", "") : "text";
        if (type != "text" && type != "input_text" && type != "output_text" && type != "refusal" &&
            type != "thinking")
          throw bad(cat("has an entry ", out.size() + 1, " with content of type ", quote(type),
                        ", only text is trained on"));
      }
    ChatTurn turn{message.dump(), message["role"].get_ref<const std::string&>() == "assistant"};
    if (const auto weight = message.find("weight"); weight != message.end() && !weight->is_null()) {
      if (!weight->is_number() || (*weight != 0 && *weight != 1))
        throw bad(cat("has an entry ", out.size() + 1, " whose weight is neither 0 nor 1"));
      turn.counted = *weight == 1;
    }
    out.push_back(std::move(turn));
  }
  return out;
}

Encoded encode_line(const DocumentEncoder& encoder, std::string_view line) {
  const auto object = Json::parse(line);
  if (!object.is_object())
    throw Error(Code::invalid_argument, "it is no JSON object", "one JSON object a line: {\"text\": \"...\"}");
  const std::string *text = text_member(object, "text"), *prompt = text_member(object, "prompt"),
                    *completion = text_member(object, "completion");
  const bool chat = object.contains("messages");
  if ((text != nullptr) + (prompt && completion) + chat != 1)
    throw Error(Code::invalid_argument, "it has to have one of text, prompt and completion, or messages",
                "one JSON object a line: {\"text\": \"...\"}, {\"prompt\": \"...\", \"completion\": \"...\"} or "
                "{\"messages\": [{\"role\": \"user\", \"content\": \"...\"}, ...]}");
  Encoded out;
  if (text) {
    out.documents.push_back(encoder.text(*text));
  } else if (chat) {
    ChatNotes notes;
    const std::string tools = object.contains("tools") && !object["tools"].is_null() ? object["tools"].dump() : "";
    out.documents = encoder.chat(turns_of(object["messages"]), tools, notes);
    out.notes = std::move(notes);
  } else {
    out.documents.push_back(encoder.completion(*prompt, *completion));
  }
  return out;
}

/// Lines that are not blank, numbered.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}
  bool next(Span& out) {
    while (!rest_.empty()) {
      const size_t end = std::min(rest_.find('\n'), rest_.size());
      out = {rest_.substr(0, end), ++line_};
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      if (!trimmed(out.text).empty()) return true;
    }
    return false;
  }

 private:
  std::string_view rest_;
  int64_t line_ = 0;
};

/// Parts of a plain text that begin at a line that is not blank, across which tokenizers do not merge. (One that adds
/// a blank before each text adds it before each part.)
class Parts {
 public:
  explicit Parts(std::string_view text) : rest_(text) {}
  bool next(Span& out) {
    if (rest_.empty()) return false;
    size_t end = rest_.size();
    for (size_t at = rest_.find('\n', part_bytes); at < rest_.size(); at = rest_.find('\n', at + 1)) {
      constexpr std::string_view blanks = " \t\r\n\v\f";
      if (at + 1 < rest_.size() && blanks.find(rest_[at + 1]) == std::string_view::npos) {
        end = at + 1;
        break;
      }
    }
    out = {rest_.substr(0, end), 0};
    rest_.remove_prefix(end);
    return true;
  }

 private:
  std::string_view rest_;
};

/// Calls encode(span) on the pool for all spans of `source`, and take(span, encoded) in order.
template <class Source, class Encode, class Take>
void for_all(Source source, const Blob& file, const DatasetOptions& options, DatasetBuilder& builder, Encode encode,
             Take take) {
  const auto* const start = reinterpret_cast<const char*>(file.data());
  if (options.progress) options.progress->stage(options.progress_until, std::max<int64_t>(file.size(), 1));
  std::vector<Span> spans;
  std::vector<Encoded> encoded;
  int64_t done = 0;
  for (bool more = true; more;) {
    file.check();
    spans.clear();
    size_t bytes = 0;
    for (Span one; bytes < batch_bytes && (more = source.next(one)); bytes += one.text.size()) spans.push_back(one);
    encoded.assign(spans.size(), {});
    auto run = [&](int64_t i, int) {
      const auto at = static_cast<size_t>(i);
      try {
        encoded[at] = encode(spans[at]);
      } catch (...) {
        encoded[at].error = std::current_exception();
      }
    };
    const auto count = static_cast<int64_t>(spans.size());
    if (options.pool) options.pool->for_each(count, run);
    else
      for (int64_t i = 0; i < count; ++i) run(i, 0);
    for (size_t i = 0; i < spans.size(); ++i) {
      if (encoded[i].error) std::rethrow_exception(encoded[i].error);
      take(spans[i], encoded[i]);
    }
    // Blank lines at the end belong to no span.
    const int64_t until = more ? spans.back().text.data() + spans.back().text.size() - start : file.size();
    if (done == 0 && until > 0) builder.expect(static_cast<double>(until) / static_cast<double>(file.size()));
    file.drop(done, until - done);
    if (options.progress) options.progress->advance(until - done);
    done = until;
  }
}

DocumentEncoder encoder_of(const DatasetOptions& options) {
  if (!options.tokenizer)
    throw Error(Code::invalid_argument, "it is text, and there is no tokenizer to read it with",
                "put the model's tokenizer.json next to it, or pass token ids as .npy");
  return DocumentEncoder(*options.tokenizer, options.eos);
}

std::string_view text_of(const Blob& file) {
  std::string_view out(reinterpret_cast<const char*>(file.data()), static_cast<size_t>(file.size()));
  if (out.starts_with("\xEF\xBB\xBF")) out.remove_prefix(3);  // byte order mark
  return out;
}

void read_lines(const Blob& file, const DatasetOptions& options, DatasetBuilder& builder) {
  const DocumentEncoder encoder = encoder_of(options);
  auto encode = [&](const Span& line) {
    try {
      return encode_line(encoder, line.text);
    } catch (const Json::parse_error& error) {
      const std::string_view all = error.what(), reason = all.substr(std::min(all.find(": "), all.size() - 2) + 2);
      throw Error(Code::invalid_argument,
                  cat("line ", line.line, " is not JSON at byte ", error.byte, " of it: ", quote(reason)),
                  "one JSON object a line; line breaks within a text are written \\n");
    } catch (const Error& error) {
      throw error.at(cat("line ", line.line));
    }
  };
  for_all(Lines(text_of(file)), file, options, builder, encode, [&](const Span& line, const Encoded& encoded) {
    for (const Document& document : encoded.documents) builder.add(document, line.line);
    if (encoded.notes) builder.count_conversation(*encoded.notes);
  });
}

void read_text(const Blob& file, const DatasetOptions& options, DatasetBuilder& builder) {
  const DocumentEncoder encoder = encoder_of(options);
  const std::string_view text = text_of(file);
  auto encode = [&](const Span& part) {
    Encoded out;
    out.documents.push_back(encoder.part(part.text, part.text.data() == text.data(),
                                         part.text.data() + part.text.size() == text.data() + text.size()));
    return out;
  };
  for_all(Parts(text), file, options, builder, encode,
          [&](const Span&, const Encoded& encoded) { builder.extend(encoded.documents[0]); });
  builder.end_stream();
}

}  // namespace

int64_t TrainingSample::targets() const {
  if (counted.empty()) return inputs();
  return std::count(counted.begin() + 1, counted.end(), uint8_t{1});
}

Dataset Dataset::read(const std::string& path, const DatasetOptions& options) {
  try {
    std::shared_ptr<const Blob> file = map_file(path);
    const std::string ending = std::filesystem::path(path).extension().string();
    if (is_npy(*file)) {
      DatasetBuilder builder(options, "row", path);
      builder.add_array(read_npy(file));
      return builder.finish();
    }
    const bool lines = ending == ".jsonl" || ending == ".json" || ending == ".ndjson";
    DatasetBuilder builder(options, lines ? "line" : "token", path);
    if (lines) read_lines(*file, options, builder);
    else read_text(*file, options, builder);
    return builder.finish();
  } catch (const Error& error) {
    if (error.code() == Code::not_found || error.code() == Code::io || error.code() == Code::cancelled) throw;
    throw error.at(quote(path, 4096));
  }
}

Dataset Dataset::of(const std::vector<Document>& documents, const DatasetOptions& options) {
  DatasetBuilder builder(options, "document");
  for (size_t i = 0; i < documents.size(); ++i) builder.add(documents[i], static_cast<int64_t>(i) + 1);
  return builder.finish();
}

int64_t Dataset::size() const { return static_cast<int64_t>(state_->pieces.size()); }

TrainingSample Dataset::operator[](int64_t index) const {
  if (state_->mapped) state_->mapped->check();
  const Piece& piece = state_->pieces[static_cast<size_t>(index)];
  const auto begin = static_cast<size_t>(piece.begin), length = static_cast<size_t>(piece.length);
  TrainingSample out{state_->ids.subspan(begin, length), {}};
  if (!state_->counted.empty()) out.counted = std::span(state_->counted).subspan(begin, length);
  return out;
}

std::string Dataset::where(int64_t index) const {
  const std::string place = cat(state_->unit, " ", state_->pieces[static_cast<size_t>(index)].place);
  return state_->file.empty() ? place : cat(quote(state_->file, 4096), ": ", place);
}

int64_t Dataset::inputs() const { return state_->inputs; }
int64_t Dataset::longest() const {
  int64_t out = 0;
  for (int64_t i = 0; i < size(); ++i) out = std::max(out, (*this)[i].inputs());
  return out;
}
int64_t Dataset::targets() const { return state_->targets; }
uint32_t Dataset::digest() const { return state_->digest; }
const std::vector<std::string>& Dataset::notes() const { return state_->notes; }

}  // namespace plait
