// plait chat: a conversation with a model in the terminal.
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "bindings/cli/common.h"
#include "bindings/cli/conversation.h"
#include "bindings/cli/line_editor.h"
#include "bindings/cli/mistakes.h"

namespace plait::cli {
namespace {

/// A line that is not the answer: to stderr, dim in a terminal.
void remark(const std::string& text) {
  const bool dim = isatty(STDERR_FILENO);
  std::fprintf(stderr, "%s%s%s\n", dim ? "\033[2m" : "", text.c_str(), dim ? "\033[0m" : "");
}

std::string with_hint(const std::string& message, const std::string& hint) {
  return hint.empty() ? message : message + " (hint: " + hint + ")";
}

/// "a b  c " -> "a", "b  c".
std::pair<std::string, std::string> first_word(const std::string& text) {
  const char* const blanks = " \t";
  const size_t end = std::min(text.find_first_of(blanks), text.size());
  const size_t rest = std::min(text.find_first_not_of(blanks, end), text.size());
  const size_t last = text.find_last_not_of(blanks);
  return {text.substr(0, end), rest > last || last == std::string::npos ? "" : text.substr(rest, last - rest + 1)};
}

/// What ended the reading of an answer.
enum class Ending { answered, interrupted, failed };

class Chat {
 public:
  Chat(const ChatArguments& arguments, const plait_api::World& world)
      : arguments_(arguments), world_(world), options_(option_sets(arguments, "generator")) {
    for (const auto& [key, value] : arguments.request) conversation_.set(key, value);
    if (!arguments.load.empty()) conversation_.load(arguments.load);
    if (!arguments.system.empty()) conversation_.set_system(arguments.system);
    if (!arguments.adapter.empty()) adapters_[arguments.adapter] = arguments.adapter, adapter_ = arguments.adapter;
  }

  /// False if Ctrl-C came first.
  bool open() {
    const InterruptWatch watch;
    options_.model.set("background", "true");
    model_.emplace(arguments_.model, options_.model);
    if (!make_generator() || !cli::load(*model_)) return false;
    check_template();
    return true;
  }

  /// A conversation with whom sits at the terminal, or line by line with a file. Returns at its end.
  void converse(LineEditor& editor) {
    if (editor.edits()) remark("/help explains the commands; Ctrl-C stops an answer, Ctrl-D ends.");
    std::string text;
    while (!over_) {
      switch (read_message(editor, text)) {
        case LineEditor::Result::end: return;
        case LineEditor::Result::interrupted: remark("Ctrl-D or /quit ends the conversation."); break;
        case LineEditor::Result::line: take(text); break;
      }
    }
  }

  /// Asks, prints the answer, and adds both to the conversation, unless it fails.
  Ending ask(const std::string& text) {
    conversation_.add("user", text);
    return answer_last();
  }

 private:
  struct Command {
    const char *name, *arguments, *doc;
    std::function<void(Chat&, const std::string&)> run;
  };
  static const std::vector<Command>& commands();

  bool make_generator() {
    generator_.reset();
    OptionSets own = option_sets(arguments_, "generator");
    for (const auto& [name, directory] : adapters_) own.rest.set("adapters", name + "=" + directory);
    generator_.emplace(make_on<plait_api::Generator>(world_, *model_, own.rest));
    return cli::load(*generator_);
  }

  /// A base model has no chat template, and would answer in nonsense.
  void check_template() const {
    const plait_api::Tokenizer tokenizer(*model_);
    const std::string probe = R"([{"role": "user", "content": "Hello"}])";
    try {
      plait_api::tensor([&](plait_tensor** out) {
        return plait_tokenizer_chat(tokenizer.get(), probe.data(), static_cast<int64_t>(probe.size()), nullptr, out);
      });
    } catch (const plait_api::Failure& failure) {
      if (failure.status() != PLAIT_NOT_FOUND && failure.status() != PLAIT_UNSUPPORTED) throw;
      throw UsageError("the model cannot chat: " + std::string(failure.what()),
                       "a base model continues texts: plait generate. The template of a chat model is the file "
                       "chat_template.jinja next to it, or a field of tokenizer_config.json");
    }
  }

  /// A message may have several lines: after a backslash, between lines of """, or pasted.
  static LineEditor::Result read_message(LineEditor& editor, std::string& text) {
    LineEditor::Result result = editor.read("> ", text);
    if (result != LineEditor::Result::line) return result;
    const std::string quotes = "\"\"\"", more = ". ";
    const bool quoted = text.rfind(quotes, 0) == 0;
    if (quoted) text.erase(0, quotes.size());
    std::string line;
    while (true) {
      const bool ends =
          text.size() >= quotes.size() && text.compare(text.size() - quotes.size(), quotes.size(), quotes) == 0;
      if (quoted && ends) return text.erase(text.size() - quotes.size()), result;
      const bool continued = !text.empty() && text.back() == '\\';
      if (!quoted && continued) text.pop_back();
      if (!quoted && !continued && !editor.has_more()) return result;
      result = editor.read(more, line);
      if (result == LineEditor::Result::interrupted) return result;
      if (result == LineEditor::Result::end) return LineEditor::Result::line;  // the next call returns it again
      text += "\n" + line;
    }
  }

  /// A command, or something to ask. Mistakes are reported, and the conversation continues.
  void take(const std::string& text) {
    if (text.find_first_not_of(" \t\n") == std::string::npos) return;
    try {
      if (text[0] == '/') command(text);
      else ask(text);
    } catch (const UsageError& error) {
      remark(with_hint(error.what(), error.hint()));
    } catch (const plait_api::Failure& error) {
      remark(with_hint(error.what(), error.hint()));
    }
  }

  void command(const std::string& text) {
    const auto [name, rest] = first_word(text.substr(1));
    std::vector<std::string> names;
    for (const Command& one : commands()) {
      if (name == one.name) return one.run(*this, rest);
      names.emplace_back(one.name);
    }
    const std::string near = closest(name, names);
    throw UsageError("there is no command /" + name,
                     near.empty() ? "/help lists them" : "did you mean /" + near + "?");
  }

  Ending answer_last() {
    Ending ending = Ending::failed;
    std::string answer_text;
    try {
      ending = stream(answer_text);
    } catch (...) {
      conversation_.drop_last();
      throw;
    }
    if (answer_text.empty()) conversation_.drop_last();
    else conversation_.add("assistant", answer_text);
    return ending;
  }

  Ending stream(std::string& text) {
    std::map<std::string, std::string> defaults = {{"max_tokens", "4096"}};
    if (!adapter_.empty()) defaults["adapter"] = adapter_;
    const InterruptWatch watch;
    const plait_api::Request request = generator_->submit_chat(conversation_.text(), conversation_.options(defaults));
    plait_event event{};
    plait_finish finish = PLAIT_FINISH_NONE;
    bool cancelled = false;
    while (true) {
      const bool came = request.next(event, patience_ms);
      if (!cancelled && interrupted()) request.cancel(), cancelled = true;
      if (!came) continue;
      if (event.kind == PLAIT_EVENT_END) break;
      if (event.sample != 0) continue;
      text.append(event.text, static_cast<size_t>(event.text_length));
      answer({event.text, static_cast<size_t>(event.text_length)});
      finish = event.finish;
    }
    answer("\n");
    summarise(request.usage(), finish);
    return cancelled ? Ending::interrupted : Ending::answered;
  }

  static void summarise(const plait_usage& usage, plait_finish finish) {
    const double seconds = usage.total_s - usage.first_token_s;
    char text[160];
    std::snprintf(text, sizeof text,
                  "%lld tokens, %.1f tokens/s, the first after %.2f s; %lld of %lld prompt tokens cached",
                  static_cast<long long>(usage.new_tokens),
                  usage.new_tokens > 1 && seconds > 0 ? static_cast<double>(usage.new_tokens - 1) / seconds : 0.0,
                  usage.first_token_s, static_cast<long long>(usage.cached_tokens),
                  static_cast<long long>(usage.prompt_tokens));
    const char* end = finish == PLAIT_FINISH_CANCELLED ? "; stopped"
                      : finish == PLAIT_FINISH_LENGTH  ? "; cut off: max_tokens or the model's context is reached"
                                                       : "";
    remark(std::string("(") + text + end + ")");
  }

  // The commands.
  void help() const {
    std::vector<std::vector<std::string>> rows;
    for (const Command& one : commands())
      rows.push_back({std::string("/") + one.name + " " + one.arguments, one.doc});
    remark(columns(rows) +
           "Several lines: end a line with \\, or put them between \"\"\" and \"\"\", or paste them.");
  }

  void set(const std::string& rest) {
    const auto [key, value] = first_word(rest);
    if (key.empty()) {
      for (const auto& [name, set_to] : conversation_.settings()) remark(name + " " + set_to);
      if (conversation_.settings().empty())
        remark("all options have the model's defaults; `plait generate --help` lists them");
      return;
    }
    conversation_.set(key, value);
    remark(value.empty() ? key + " has its default" : key + " is " + value);
  }

  /// An adapter that the generator does not have takes a new one, which has the weights already.
  void use_adapter(const std::string& directory) {
    if (!directory.empty() && !adapters_.count(directory)) {
      const InterruptWatch watch;
      adapters_[directory] = directory;
      try {
        if (!make_generator()) throw UsageError("interrupted: the adapter is not loaded");
      } catch (...) {
        adapters_.erase(directory);
        const InterruptWatch anew;
        make_generator();
        throw;
      }
    }
    adapter_ = directory;
    remark(directory.empty() ? "no adapter" : "adapter " + directory);
  }

  void again() {
    if (!conversation_.drop_answer()) throw UsageError("there is no answer yet to be given again");
    answer_last();
  }

  const ChatArguments& arguments_;
  const plait_api::World& world_;
  OptionSets options_;
  Conversation conversation_;
  std::map<std::string, std::string> adapters_;  ///< of the generator: name, directory
  std::string adapter_;                          ///< "": none
  std::optional<plait_api::Model> model_;
  std::optional<plait_api::Generator> generator_;
  bool over_ = false;
};

const std::vector<Chat::Command>& Chat::commands() {
  static const std::vector<Command> out = {
      {"system", "[TEXT]", "the system message; nothing: none",
       [](Chat& chat, const std::string& rest) { chat.conversation_.set_system(rest); }},
      {"set", "[OPTION [VALUE]]",
       "a sampling option: /set temperature 0.7; without a value: its default; without an option: all that are set", &Chat::set},
      {"reset", "", "forget all but the system message",
       [](Chat& chat, const std::string&) { chat.conversation_.reset(); }},
      {"again", "", "give the last answer once more", [](Chat& chat, const std::string&) { chat.again(); }},
      {"adapter", "[DIRECTORY]", "answer with this adapter (PEFT's layout); nothing: without", &Chat::use_adapter},
      {"save", "FILE", "write the conversation, as a line that `plait train --data` takes",
       [](Chat& chat, const std::string& rest) { chat.conversation_.save(rest), remark("written: " + rest); }},
      {"load", "FILE", "continue a conversation that was saved",
       [](Chat& chat, const std::string& rest) {
         chat.conversation_.load(rest);
         remark(std::to_string(chat.conversation_.messages().size()) + " messages");
       }},
      {"help", "", "this list", [](Chat& chat, const std::string&) { chat.help(); }},
      {"quit", "", "end, as Ctrl-D does", [](Chat& chat, const std::string&) { chat.over_ = true; }},
  };
  return out;
}

std::string history_file(const ChatArguments& arguments) {
  return arguments.cache_dir.empty() ? "" : arguments.cache_dir + "/chat_history";
}

}  // namespace

int chat(const ChatArguments& arguments) {
  const plait_api::World world = open_world(arguments, option_sets(arguments, "generator"));
  if (is_worker(world)) return world.serve(), exit_ok;
  Chat conversation(arguments, world);
  if (!conversation.open()) return exit_interrupted;
  const bool piped = !isatty(STDIN_FILENO) && !arguments.lines;
  if (arguments.has_prompt || piped) {
    std::string text = arguments.prompt;
    if (piped && !arguments.has_prompt) text = read_all("-");
    const size_t end = text.find_last_not_of(" \t\r\n");
    if (end == std::string::npos) throw UsageError("the message is empty", "pass it with --prompt, or on stdin");
    text.resize(end + 1);
    return conversation.ask(text) == Ending::interrupted ? exit_interrupted : exit_ok;
  }
  LineEditor editor(history_file(arguments));
  conversation.converse(editor);
  return exit_ok;
}

}  // namespace plait::cli
