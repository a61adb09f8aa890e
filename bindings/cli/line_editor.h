#pragma once
// Lines from a terminal, with editing and history (libedit), or from whatever stdin is.
#include <cstdio>
#include <memory>
#include <string>

namespace plait::cli {

/// One at a time; not thread-safe.
class LineEditor {
 public:
  /// Edits if stdin and stdout are a terminal; otherwise lines are read as they come. History lies in `history_file`; "": only in memory.
  explicit LineEditor(std::string history_file);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;

  bool edits() const { return terminal_ != nullptr; }

  enum class Result { line, end, interrupted };  ///< end: Ctrl-D or the end of the file; interrupted: Ctrl-C
  /// The next line without its end. The prompt is only for terminals.
  Result read(const std::string& prompt, std::string& line);
  /// Whether more was typed or pasted already.
  bool has_more() const;

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;
};

}  // namespace plait::cli
