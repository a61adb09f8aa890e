#pragma once
// A conversation's way to the engine, and its answer's way back: what all wires with messages have in common. A wire other than
// /v1/chat/completions writes its body as one of chat completions, and has a form of its own for the blocks of the answer.
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "serving/http/base/failure.h"
#include "serving/http/wires/tools.h"

namespace plait::http {

/// A body in the form of chat completions, checked.
struct Chat {
  Named named;
  Tools tools;
  Structure structure;
  std::string messages, variables;  ///< for the chat template
  plait_api::Options options;
};

/// `text`: the body, of which `body` are the fields. Throws HttpError(400).
Chat chat_of(const Models& models, std::string_view text, const Fields& body);
/// Throws HttpError, plait_api::Failure.
plait_api::Request submit(Chat& chat);
/// Tokens of the prompt, with those that the tokenizer adds if `special`. Throws plait_api::Failure.
std::vector<int32_t> prompt_tokens(const Chat& chat, bool special);

/// A body of another wire, written as one of chat completions.
struct ChatBody {
  OrderedJson fields;
  /// What parts of its paths are in the client's body: the first that begins a path, or is in it and begins with "]".
  std::vector<std::pair<std::string, std::string>> names;
};
/// As above, with errors that name the client's fields.
Chat chat_of(const Models& models, const ChatBody& body);
/// An engine's or the body's error, with the client's names.
HttpError renamed(const HttpError& error, const ChatBody& body);

/// Of the template's variables: a body's `chat_template_kwargs`, and whether to think, and how long ("": not told).
void set_thinking(std::optional<bool> enabled, const std::string& effort, OrderedJson& fields);

/// The field, or null.
const OrderedJson* found(const OrderedJson& object, const char* name);

/// A field's text, which has to be there. Throws HttpError(400) with its path.
const std::string& needed_text(const OrderedJson& object, const char* name, const std::string& path);
/// A text, or a list of `what` with texts ("blocks"), joined. `field_of`: the field of a part of that type that has its text; throws
/// for types that have none. Throws HttpError(400) with the path.
std::string joined_text(const OrderedJson& content, const std::string& path, const char* what,
                        const std::function<const char*(const std::string& type, const std::string& path)>& field_of);

/// The parts of an output, as its text comes.
class Parts {
 public:
  explicit Parts(const Tools& tools);
  std::vector<AnswerPart> read(const plait_event& event);
  /// Tokens within thoughts so far.
  int64_t thought_tokens() const { return thought_tokens_; }

 private:
  std::optional<ToolParser> parser_;  ///< none: all is text
  int64_t thought_tokens_ = 0;
};

/// A thought, a text or a call.
struct Block {
  AnswerPart::Kind kind;
  std::string id, name, text;  ///< text: of a call its arguments
  bool cut = false;            ///< it ended because there were no more tokens
};

/// An answer with one output, as blocks that follow each other.
class BlockWriter : public Writer {
 public:
  BlockWriter(Form form, const Tools& tools) : form_(std::move(form)), parts_(tools) {}
  void event(int32_t choice, const plait_event& event, std::string& out) override;

 protected:
  /// An id for a block of that kind.
  virtual std::string id_of(AnswerPart::Kind kind) const = 0;
  /// Of a stream; the block is the last of blocks().
  virtual void opened(const Block& block, std::string& out) = 0;
  virtual void more(const Block& block, const std::string& text, std::string& out) = 0;
  virtual void closed(const Block& block, std::string& out) = 0;

  const Form& form() const { return form_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  int64_t thought_tokens() const { return parts_.thought_tokens(); }
  plait_finish finish() const { return finish_; }
  bool has_calls() const;

 private:
  void close(std::string& out);

  const Form form_;
  Parts parts_;
  std::vector<Block> blocks_;
  plait_finish finish_ = PLAIT_FINISH_NONE;
};

/// "event: ...", of an object with its type.
void write_event(const Json& object, std::string& out);

}  // namespace plait::http
