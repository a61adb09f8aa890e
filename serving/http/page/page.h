#pragma once
// Files of this folder, compiled in: the server's page (a chat, and what the server is doing), and the table of its interface.
#include <span>
#include <string_view>

namespace plait::http {

struct PageFile {
  std::string_view path, content_type, text;
};

std::span<const PageFile> page_files();

/// JSON: by route, what it takes and answers; and the schemas of these.
std::string_view api_table();

}  // namespace plait::http
