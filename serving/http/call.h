#pragma once
// An HTTP request that waits for its answer.
#include <mutex>
#include <string>

#include "serving/http/base/access.h"
#include "serving/http/base/answer.h"

namespace plait::http {

struct Route;

struct Call {
  Call(const Head& head, std::string own_fields) : path(head.path), body(head.body), fields(std::move(own_fields)) {
    const std::string_view id = field_of(head, "x-request-id");
    constexpr size_t longest_id = 256;
    if (!id.empty() && id.size() <= longest_id) fields.append("x-request-id: ").append(id).append("\n");
  }
  bool is_gone() {
    std::lock_guard lock(mutex);
    return gone;
  }

  const std::string path, body;
  uint64_t number = 0;
  const Route* route = nullptr;

  std::mutex mutex;
  std::string fields;  ///< of the answer
  std::unique_ptr<Answer> answer;
  bool gone = false;      ///< the client has left, or was answered
  bool begun = false;     ///< its first part was taken
  bool complete = false;  ///< all of the answer was taken
  bool refused = false;   ///< the meter has counted its end
  bool failed = false;    ///< there was no memory for an answer, which `take` returns
};

}  // namespace plait::http
