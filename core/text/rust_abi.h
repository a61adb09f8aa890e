#pragma once
// The C ABI of the Rust crate in core/text/rust. Only for core/text and the tests; others use tokenizer.h and
// constraint.h.
//
// Every int32_t result is 0 or a number of plait::Code. A function that fails only sets `error` (which may be null)
// and never throws, prints or aborts; a panic inside is Code::internal. Tokenizers and grammars are thread-safe, streams and
// constraints are not.
// Views are read only during the call.
#include <stddef.h>
#include <stdint.h>

extern "C" {

typedef struct plait_text_tokenizer plait_text_tokenizer;
typedef struct plait_text_stream plait_text_stream;
typedef struct plait_text_grammar plait_text_grammar;
typedef struct plait_text_constraint plait_text_constraint;
typedef struct plait_text_pattern plait_text_pattern;

/// Memory of the caller; data may be null if size is 0.
typedef struct plait_text_view {
  const char* data;
  size_t size;
} plait_text_view;

/// Memory of the crate, to be released with plait_text_bytes_free.
typedef struct plait_text_bytes {
  char* data;
  size_t size;
} plait_text_bytes;

/// Memory of the crate, to be released with plait_text_ids_free.
typedef struct plait_text_ids {
  int32_t* data;
  size_t size;
} plait_text_ids;

typedef struct plait_text_error {
  plait_text_bytes message;
  plait_text_view hint;  ///< static
} plait_text_error;

/// The contents of the files of that name; empty for files that do not exist.
typedef struct plait_text_files {
  plait_text_view tokenizer_json;
  plait_text_view tokenizer_config;
  plait_text_view special_tokens_map;
  plait_text_view chat_template;       ///< chat_template.jinja
  plait_text_view chat_template_json;  ///< chat_template.json
  plait_text_view tool_use_template;   ///< additional_chat_templates/tool_use.jinja
} plait_text_files;

/// Limits of encoding, decoding or rendering one text, in addition to an allowance for its size.
typedef struct plait_text_limits {
  uint64_t bytes;  ///< memory
  uint64_t milliseconds;
} plait_text_limits;

typedef struct plait_text_chat {
  plait_text_view messages;  ///< JSON list
  plait_text_view tools;     ///< JSON list, or empty
  plait_text_view extra;     ///< JSON object of further variables, or empty
  bool add_generation_prompt;
} plait_text_chat;

/// Memory of the crate, a rendered conversation, to be released with plait_text_chat_free.
typedef struct plait_text_rendered {
  plait_text_bytes text;
  struct {
    uint64_t* data;
    size_t size;
  } generated;               ///< begin and end of each part within {% generation %} blocks, in bytes
  plait_text_bytes unknown;  ///< members of messages that the template does not name, a zero byte after each
  bool marked;               ///< whether `generated` specifies what of the text is generated
} plait_text_rendered;

/// `crate_model` uses the tokenizers crate's own model, the oracle of the tests: slower to load, otherwise equal.
int32_t plait_text_create(const plait_text_files* files, plait_text_limits limits, bool crate_model,
                          plait_text_tokenizer** out, plait_text_error* error);
/// From a fast form. Fails with bad_model if it is damaged or made from another tokenizer.json than that of `files`.
int32_t plait_text_create_fast(plait_text_view fast, const plait_text_files* files, plait_text_limits limits,
                               plait_text_tokenizer** out, plait_text_error* error);
/// Streams keep what they need. Null is ignored.
void plait_text_free(plait_text_tokenizer* tokenizer);
/// Pending encoding, decoding and rendering of other threads ends with Code::cancelled; streams do not.
void plait_text_cancel(const plait_text_tokenizer* tokenizer);
/// unsupported for models other than BPE.
int32_t plait_text_save_fast(const plait_text_tokenizer* tokenizer, plait_text_bytes* out, plait_text_error* error);

int32_t plait_text_encode(const plait_text_tokenizer* tokenizer, plait_text_view text, bool add_special,
                          plait_text_ids* out, plait_text_error* error);
int32_t plait_text_decode(const plait_text_tokenizer* tokenizer, const int32_t* ids, size_t count, bool skip_special,
                          plait_text_bytes* out, plait_text_error* error);

/// One past the largest id, including added tokens.
int32_t plait_text_vocab_size(const plait_text_tokenizer* tokenizer);
/// -1 if there is no such piece.
int32_t plait_text_piece_to_id(const plait_text_tokenizer* tokenizer, plait_text_view piece);
int32_t plait_text_id_to_piece(const plait_text_tokenizer* tokenizer, int32_t id, plait_text_bytes* out,
                               plait_text_error* error);
bool plait_text_is_special(const plait_text_tokenizer* tokenizer, int32_t id);
/// The id of tokenizer_config.json's `key`, such as "bos_token"; -1 if absent.
int32_t plait_text_named_token(const plait_text_tokenizer* tokenizer, plait_text_view key);

bool plait_text_has_chat_template(const plait_text_tokenizer* tokenizer);
int32_t plait_text_render_chat(const plait_text_tokenizer* tokenizer, const plait_text_chat* chat,
                               plait_text_rendered* out, plait_text_error* error);
void plait_text_chat_free(plait_text_rendered rendered);

int32_t plait_text_stream_create(const plait_text_tokenizer* tokenizer, bool skip_special, plait_text_stream** out,
                                 plait_text_error* error);
/// `out` is valid until the next call for this stream.
int32_t plait_text_stream_push(plait_text_stream* stream, int32_t id, plait_text_view* out, plait_text_error* error);
/// The ids so far are a prompt: a character that is incomplete there counts only if what follows completes it.
void plait_text_stream_end_prompt(plait_text_stream* stream);
int32_t plait_text_stream_finish(plait_text_stream* stream, plait_text_view* out, plait_text_error* error);
void plait_text_stream_free(plait_text_stream* stream);

/// The bytes that the id adds within a text.
int32_t plait_text_token_bytes(const plait_text_tokenizer* tokenizer, int32_t id, plait_text_bytes* out,
                               plait_text_error* error);

/// What may come next: views of the constraint, until its next call.
typedef struct plait_text_next {
  const uint32_t* mask;  ///< bit id % 32 of word id / 32
  size_t mask_words;
  const int32_t* forced;
  size_t forced_count;
  bool may_end;
  bool ended;
} plait_text_next;

/// Makes the tree of all tokens' bytes.
int32_t plait_text_prepare_grammars(const plait_text_tokenizer* tokenizer, plait_text_error* error);
/// `kind`: a number of plait::GrammarKind. The grammar keeps what it needs of the tokenizer.
int32_t plait_text_grammar_create(const plait_text_tokenizer* tokenizer, int32_t kind, plait_text_view text,
                                  plait_text_grammar** out, plait_text_error* error);
void plait_text_grammar_free(plait_text_grammar* grammar);
int32_t plait_text_grammar_start(const plait_text_grammar* grammar, plait_text_constraint** out,
                                 plait_text_error* error);
int32_t plait_text_constraint_fork(const plait_text_constraint* constraint, plait_text_constraint** out,
                                   plait_text_error* error);
/// `ended`: nothing may follow the token.
int32_t plait_text_constraint_commit(plait_text_constraint* constraint, int32_t id, bool* ended,
                                     plait_text_error* error);
int32_t plait_text_constraint_next(plait_text_constraint* constraint, plait_text_next* out, plait_text_error* error);
void plait_text_constraint_free(plait_text_constraint* constraint);

// For graphs: the ops on strings. Patterns are thread-safe.

/// bad_model for a pattern that is damaged, or larger than the crate's limit.
int32_t plait_text_pattern_create(plait_text_view pattern, plait_text_pattern** out, plait_text_error* error);
/// Whether the whole text matches; invalid_argument for one that is no UTF-8.
int32_t plait_text_pattern_match(const plait_text_pattern* pattern, plait_text_view text, bool* matches, plait_text_error* error);
void plait_text_pattern_free(plait_text_pattern* pattern);
/// By Unicode's full mappings, of no language; invalid_argument for a text that is no UTF-8.
int32_t plait_text_change_case(plait_text_view text, bool upper, plait_text_bytes* out, plait_text_error* error);

void plait_text_bytes_free(plait_text_bytes bytes);
void plait_text_ids_free(plait_text_ids ids);

}  // extern "C"
