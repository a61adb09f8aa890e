#include "core/text/tokenizer.h"

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"
#include "core/text/abi_calls.h"
#include "core/text/fast_cache.h"

namespace plait {

using text_abi::check;
using text_abi::take_text;
using text_abi::view;

namespace {

plait_text_files abi_files(const TokenizerFiles& files) {
  return {view(files.tokenizer_json), view(files.tokenizer_config),   view(files.special_tokens_map),
          view(files.chat_template),  view(files.chat_template_json), view(files.tool_use_template)};
}

plait_text_limits abi_limits(TextLimits limits) { return {limits.bytes, limits.milliseconds}; }

std::optional<int32_t> id_or_none(int32_t id) { return id < 0 ? std::nullopt : std::optional(id); }

/// Empty if there is no such file.
std::string read_optional(const std::string& path) {
  try {
    return read_text_file(path);
  } catch (const Error& error) {
    if (error.code() == Code::not_found) return {};
    throw;
  }
}

std::shared_ptr<Blob> read_tokenizer_json(const std::string& directory) {
  try {
    return read_file(directory + "/tokenizer.json");
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
    throw Error(Code::not_found, cat("there is no tokenizer.json in ", quote(directory)),
                "put the model's tokenizer.json there; from a tokenizer.model or vocab.txt it is made by "
                "transformers' AutoTokenizer.from_pretrained(...).save_pretrained(directory)");
  }
}

}  // namespace

Tokenizer::Tokenizer(plait_text_tokenizer* handle) : handle_(handle, plait_text_free) {}

Tokenizer Tokenizer::load(const std::string& directory, const std::string& cache_dir, TextLimits limits) {
  auto json = read_tokenizer_json(directory);
  std::string config = read_optional(directory + "/tokenizer_config.json");
  std::string chat_template = read_optional(directory + "/chat_template.jinja");
  std::string chat_template_json = read_optional(directory + "/chat_template.json");
  std::string special_tokens = read_optional(directory + "/special_tokens_map.json");
  std::string tool_use = read_optional(directory + "/additional_chat_templates/tool_use.jinja");
  TokenizerFiles files{blob_text(*json), config, chat_template, chat_template_json, special_tokens, tool_use};
  if (cache_dir.empty()) return from_bytes(files, limits);

  std::string path = fast_cache_path(directory, cache_dir);
  if (auto fast = read_fast_cache(path)) {
    try {
      return from_fast(blob_text(*fast), files, limits);
    } catch (const Error&) {
      // Stale or damaged: rebuilt below, which also reports faults of the other files.
    }
  }
  Tokenizer tokenizer = from_bytes(files, limits);
  try {
    write_fast_cache(path, tokenizer.save_fast());
  } catch (const Error&) {
    // Not a BPE model.
  }
  return tokenizer;
}

Tokenizer Tokenizer::from_bytes(const TokenizerFiles& files, TextLimits limits) {
  plait_text_files abi = abi_files(files);
  plait_text_tokenizer* handle = nullptr;
  plait_text_error error{};
  check(plait_text_create(&abi, abi_limits(limits), false, &handle, &error), error);
  return Tokenizer(handle);
}

Tokenizer Tokenizer::from_fast(std::string_view fast, const TokenizerFiles& files, TextLimits limits) {
  plait_text_files abi = abi_files(files);
  plait_text_tokenizer* handle = nullptr;
  plait_text_error error{};
  check(plait_text_create_fast(view(fast), &abi, abi_limits(limits), &handle, &error), error);
  return Tokenizer(handle);
}

void Tokenizer::cancel() const { plait_text_cancel(handle_.get()); }

std::string Tokenizer::save_fast() const {
  return take_text([&](auto* out, auto* error) { return plait_text_save_fast(handle_.get(), out, error); });
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special) const {
  plait_text_ids ids{};
  plait_text_error error{};
  check(plait_text_encode(handle_.get(), view(text), add_special, &ids, &error), error);
  std::unique_ptr<plait_text_ids, void (*)(plait_text_ids*)> owner(
      &ids, [](plait_text_ids* owned) { plait_text_ids_free(*owned); });
  return std::vector<int32_t>(ids.data, ids.data + ids.size);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  return take_text([&](auto* out, auto* error) {
    return plait_text_decode(handle_.get(), ids.data(), ids.size(), skip_special, out, error);
  });
}

int32_t Tokenizer::vocab_size() const { return plait_text_vocab_size(handle_.get()); }

std::string Tokenizer::id_to_piece(int32_t id) const {
  return take_text([&](auto* out, auto* error) { return plait_text_id_to_piece(handle_.get(), id, out, error); });
}

std::string Tokenizer::token_bytes(int32_t id) const {
  return take_text([&](auto* out, auto* error) { return plait_text_token_bytes(handle_.get(), id, out, error); });
}

void Tokenizer::prepare_grammars() const {
  text_abi::run([&](auto* error) { return plait_text_prepare_grammars(handle_.get(), error); });
}

std::optional<int32_t> Tokenizer::piece_to_id(std::string_view piece) const {
  return id_or_none(plait_text_piece_to_id(handle_.get(), view(piece)));
}

bool Tokenizer::is_special(int32_t id) const { return plait_text_is_special(handle_.get(), id); }

std::optional<int32_t> Tokenizer::named_token(std::string_view key) const {
  return id_or_none(plait_text_named_token(handle_.get(), view(key)));
}

std::optional<int32_t> Tokenizer::bos_id() const { return named_token("bos_token"); }
std::optional<int32_t> Tokenizer::eos_id() const { return named_token("eos_token"); }

bool Tokenizer::has_chat_template() const { return plait_text_has_chat_template(handle_.get()); }

std::string Tokenizer::render_chat(const ChatRequest& request) const { return render_chat_parts(request).text; }

ChatText Tokenizer::render_chat_parts(const ChatRequest& request) const {
  const plait_text_chat chat{view(request.messages), view(request.tools), view(request.variables),
                             request.add_generation_prompt};
  plait_text_rendered rendered{};
  plait_text_error error{};
  check(plait_text_render_chat(handle_.get(), &chat, &rendered, &error), error);
  const std::unique_ptr<plait_text_rendered, void (*)(plait_text_rendered*)> owner(
      &rendered, [](plait_text_rendered* owned) { plait_text_chat_free(*owned); });
  ChatText out{std::string(rendered.text.data, rendered.text.size), std::nullopt, {}};
  if (rendered.marked) {
    out.generated.emplace();
    for (size_t i = 0; i + 1 < rendered.generated.size; i += 2)
      out.generated->emplace_back(rendered.generated.data[i], rendered.generated.data[i + 1]);
  }
  std::string_view names(rendered.unknown.data, rendered.unknown.size);
  for (size_t end = names.find('\0'); end != std::string_view::npos; end = names.find('\0')) {
    out.unknown.emplace_back(names.substr(0, end));
    names.remove_prefix(end + 1);
  }
  return out;
}

TextStream Tokenizer::stream(bool skip_special) const {
  plait_text_stream* stream = nullptr;
  plait_text_error error{};
  check(plait_text_stream_create(handle_.get(), skip_special, &stream, &error), error);
  return TextStream(stream);
}

void TextStream::Free::operator()(plait_text_stream* stream) const { plait_text_stream_free(stream); }

std::string TextStream::push(int32_t id) {
  plait_text_view out{};
  plait_text_error error{};
  check(plait_text_stream_push(stream_.get(), id, &out, &error), error);
  return std::string(out.data, out.size);
}

void TextStream::end_prompt() { plait_text_stream_end_prompt(stream_.get()); }

std::string TextStream::finish() {
  plait_text_view out{};
  plait_text_error error{};
  check(plait_text_stream_finish(stream_.get(), &out, &error), error);
  return std::string(out.data, out.size);
}

}  // namespace plait
