#include "bindings/cli/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <iostream>

namespace plait::cli {

struct LineEditor::Terminal {
  EditLine* editor = el_init("plait", stdin, stdout, stderr);
  History* history = history_init();
  std::string history_file, prompt;
  bool interrupted = false;

  ~Terminal() {
    HistEvent event{};
    if (!history_file.empty()) ::history(history, &event, H_SAVE, history_file.c_str());
    history_end(history);
    el_end(editor);
  }

  static Terminal* of(EditLine* editor) {
    void* out = nullptr;
    el_get(editor, EL_CLIENTDATA, &out);
    return static_cast<Terminal*>(out);
  }
  static char* prompt_of(EditLine* editor) { return of(editor)->prompt.data(); }
  /// Ctrl-C is a key here: as a signal it would end the wait only at its second time.
  static unsigned char on_interrupt(EditLine* editor, int) {
    of(editor)->interrupted = true;
    return CC_EOF;
  }
  static unsigned char on_suspend(EditLine* editor, int) {
    el_set(editor, EL_PREP_TERM, 0);
    std::raise(SIGTSTP);
    el_set(editor, EL_PREP_TERM, 1);
    return CC_REDISPLAY;
  }
};

LineEditor::LineEditor(std::string history_file) {
  if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) return;
  const char* locale = std::setlocale(LC_CTYPE, "");
  if (!locale || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  terminal_ = std::make_unique<Terminal>();
  terminal_->history_file = std::move(history_file);
  EditLine* editor = terminal_->editor;
  HistEvent event{};
  ::history(terminal_->history, &event, H_SETSIZE, 1000);
  ::history(terminal_->history, &event, H_SETUNIQUE, 1);
  if (!terminal_->history_file.empty())
    ::history(terminal_->history, &event, H_LOAD, terminal_->history_file.c_str());
  el_set(editor, EL_CLIENTDATA, terminal_.get());
  el_set(editor, EL_PROMPT, Terminal::prompt_of);
  el_set(editor, EL_HIST, ::history, terminal_->history);
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_ADDFN, "plait-interrupt", "Abandons the line", Terminal::on_interrupt);
  el_set(editor, EL_ADDFN, "plait-suspend", "Suspends the program", Terminal::on_suspend);
  el_set(editor, EL_SETTY, "-d", "-isig", nullptr);
  el_set(editor, EL_BIND, "^Z", "plait-suspend", nullptr);
  el_set(editor, EL_BIND, "^C", "plait-interrupt", nullptr);
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  // A Ctrl-D from before the prompt: the terminal gives its mark of an end as a zero.
  el_set(editor, EL_BIND, "^@", "ed-end-of-file", nullptr);
  el_source(editor, nullptr);  // the user's own ~/.editrc
}

LineEditor::~LineEditor() = default;

LineEditor::Result LineEditor::read(const std::string& prompt, std::string& line) {
  line.clear();
  if (!terminal_) {
    if (isatty(STDIN_FILENO)) std::cerr << prompt << std::flush;
    return std::getline(std::cin, line) ? Result::line : Result::end;
  }
  terminal_->prompt = prompt;
  terminal_->interrupted = false;
  int count = 0;
  el_set(terminal_->editor, EL_PREP_TERM, 1);  // before the prompt is there: a Ctrl-C after it is a key
  const char* text = el_gets(terminal_->editor, &count);
  if (terminal_->interrupted) {
    std::fputs("^C\n", stdout);
    return Result::interrupted;
  }
  if (!text || count <= 0) return Result::end;
  line.assign(text, static_cast<size_t>(count));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  HistEvent event{};
  if (!line.empty()) ::history(terminal_->history, &event, H_ENTER, line.c_str());
  return Result::line;
}

bool LineEditor::has_more() const {
  if (!terminal_) return false;
  el_set(terminal_->editor, EL_PREP_TERM, 1);  // otherwise the terminal reports whole lines only
  pollfd input{STDIN_FILENO, POLLIN, 0};
  const bool more = poll(&input, 1, 0) == 1 && (input.revents & POLLIN);
  el_set(terminal_->editor, EL_PREP_TERM, 0);
  return more;
}

}  // namespace plait::cli
