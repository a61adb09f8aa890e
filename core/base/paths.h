#pragma once
// What exists on disk. Absent is ENOENT or ENOTDIR, and nothing else: every other answer of the system is Error(io), since a directory
// that cannot be read is not an empty one.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace plait {

enum class PathKind { file, directory, other };

/// What the path names, through links; nullopt if there is nothing. Throws Error(io).
std::optional<PathKind> look(const std::string& path);

inline bool exists(const std::string& path) { return look(path).has_value(); }
inline bool is_file(const std::string& path) { return look(path) == PathKind::file; }
inline bool is_directory(const std::string& path) { return look(path) == PathKind::directory; }

/// Names in a directory without "." and "..", sorted; none if there is no such directory. Throws Error(io).
std::vector<std::string> names_in(const std::string& directory);

/// The absolute path without links, "." and ".."; nullopt if there is nothing. Throws Error(io).
std::optional<std::string> real_path(const std::string& path);

/// Where a link leads; nullopt if there is no such link. Throws Error(io).
std::optional<std::string> link_target(const std::string& path);

/// Makes the directory, and those above it; true if it made this one. Throws Error(io).
bool make_directories(const std::string& path);

/// Removes a file, a link, or a directory with all it holds; nothing if there is none. Throws Error(io).
void remove_path(const std::string& path);

}  // namespace plait
