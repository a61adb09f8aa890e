#pragma once
// The server's page: a chat, and what the server is doing. Files of this folder, compiled in.
#include <span>
#include <string_view>

namespace plait::http {

struct PageFile {
  std::string_view path, content_type, text;
};

std::span<const PageFile> page_files();

}  // namespace plait::http
