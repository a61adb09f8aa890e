#pragma once
// Several files that become visible as one: a directory that is read while it is written, or after a crash, has all of
// them or not one.
#include <string>

namespace plait {

/// A directory next to `target`, or within it if that exists, into which files are written. Unless it is published, its
/// destructor removes it. Drafts of `target` that ended processes left are removed when one is made, with what they had
/// published of a set that is not whole.
class DraftDirectory {
 public:
  enum class Existing { kept, replaced };  ///< files of the target whose names the draft has, too

  /// Throws Error(io).
  explicit DraftDirectory(std::string target);
  ~DraftDirectory();
  DraftDirectory(const DraftDirectory&) = delete;
  DraftDirectory& operator=(const DraftDirectory&) = delete;

  const std::string& path() const { return path_; }
  const std::string& target() const { return target_; }
  /// Moves the files, which have been synced, to the target: the file `last` after all others. An error leaves the target
  /// as it was, except files that were replaced. Throws Error(io).
  void publish(const std::string& last, Existing existing);

 private:
  void remove_left() const;
  void make();
  void move_into(const std::string& last, Existing existing);

  std::string target_, path_;
  bool within_;
  int lock_ = -1;
};

}  // namespace plait
