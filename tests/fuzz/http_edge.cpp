// Whatever comes in at the server's socket: raw bytes ('r'), or a body for a path (other first bytes, by `paths`). A body has an answer,
// bytes may have one; it is no 5xx but 503, and the server continues.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "bindings/c/plait.hpp"
#include "bindings/server/plait_server.h"
#include "tests/fuzz/fuzz.h"

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// For an answer, on a machine that is busy, under sanitizers.
constexpr auto patience = std::chrono::seconds(60);
/// For raw bytes, which the server may wait for more of.
constexpr auto glance = std::chrono::milliseconds(5);

constexpr const char* paths[] = {"/v1/chat/completions",      "/v1/completions", "/v1/responses", "/v1/messages",
                                 "/v1/messages/count_tokens", "/v1/embeddings",  "/tokenize",     "/detokenize",
                                 "/v1/load_lora_adapter"};

/// Tools are called by tags, whose grammar and reader have the most to go wrong.
constexpr const char* chat_template =
    R"({% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}{% for message in messages %}<{{ message.role }}>)"
    R"({{ message.content }}{% for call in message.tool_calls or [] %}{{ "<call=" ~ call.function.name ~ ">" }})"
    R"({% for key, value in call.function.arguments | items %}{{ "<key=" ~ key ~ ">" }})"
    R"({{ value if value is string else value | tojson }}{{ "</key>" }}{% endfor %}{{ "</call>" }}{% endfor %})"
    R"({% endfor %}{% if add_generation_prompt %}<assistant>{% endif %})";

[[noreturn]] void broken(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

/// A server of the fixture with that template, until the process ends.
class Edge {
 public:
  static const std::string& socket_path() {
    static Edge* const edge = new Edge;  // its threads end with the process
    return edge->socket_;
  }

 private:
  Edge() {
    const fs::path directory = fs::temp_directory_path() / ("plait-fuzz-http-" + std::to_string(getpid()));
    fs::remove_all(directory);
    fs::create_directories(directory / "model");
    for (const auto& entry : fs::directory_iterator(PLAIT_FIXTURES "/gemma3-standard23"))
      fs::create_symlink(fs::absolute(entry.path()), directory / "model" / entry.path().filename());
    std::ofstream(directory / "model" / "chat_template.jinja") << chat_template;
    socket_ = directory / "socket";
    plait_api::Options options, own;
    own.set("address", "unix:" + socket_);
    model_ = plait_api::Model(directory / "model");
    generator_ = plait_api::Generator(model_, options.set("threads", 1).set("context", 256));
    plait_api::check(plait_server_create(own.get(), &server_));
    plait_api::check(plait_server_add(server_, "m", model_.get(), generator_.get()));
    if (!generator_.wait(60000)) broken("the model does not load");
  }

  std::string socket_;
  plait_api::Model model_;
  plait_api::Generator generator_;
  plait_server* server_ = nullptr;
};

/// What the server sends back, until it closes the connection or `limit` has passed; `closed`: which of them.
std::string sent_back(const std::string& data, Clock::duration limit, bool& closed) {
  const int handle = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  Edge::socket_path().copy(address.sun_path, sizeof address.sun_path - 1);
  while (handle < 0 || connect(handle, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    if (handle < 0 || errno != EINTR) broken("the server takes no connection");
  const Clock::time_point end = Clock::now() + limit;
  std::string out;
  closed = false;
  for (size_t sent = 0; !closed;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) break;
    pollfd wanted{handle, static_cast<short>(POLLIN | (sent < data.size() ? POLLOUT : 0)), 0};
    const int ready = poll(&wanted, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;  // libFuzzer's alarm, every timeout / 2 + 1 seconds
    if (ready <= 0) break;
    if (wanted.revents & POLLOUT) {
      const ssize_t count = send(handle, data.data() + sent, data.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      sent = count > 0 ? sent + static_cast<size_t>(count) : data.size();
    }
    if (wanted.revents & (POLLIN | POLLHUP | POLLERR)) {
      char bytes[4096];
      const ssize_t count = recv(handle, bytes, sizeof bytes, MSG_DONTWAIT);
      closed = count == 0 || (count < 0 && errno != EAGAIN);
      if (count > 0) out.append(bytes, static_cast<size_t>(count));
    }
  }
  close(handle);
  // An answer that only asks for the body comes before the other one.
  if (out.starts_with("HTTP/1.1 100")) out.erase(0, std::min(out.find("\r\n\r\n"), out.size() - 4) + 4);
  return out;
}

/// The status of an answer; 0: there is none.
int status_of(const std::string& answer) {
  return answer.starts_with("HTTP/1.") && answer.size() > 12 ? std::atoi(answer.c_str() + 9) : 0;
}

std::string request_of(const char* path, std::string_view body) {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: " + std::to_string(body.size()) +
         "\r\n\r\n" + std::string(body);
}

}  // namespace

std::vector<std::string> plait::fuzz::seeds() {
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":{)"
      R"("a":{"type":"string","maxLength":4},"b":{"anyOf":[{"type":"string","pattern":"^[a-z]+$"},{"type":"null"}]},)"
      R"("c":{"type":["integer","string"],"minimum":3},"d":{"$ref":"#/$defs/d"},"e":{"enum":["x",5,null]}},"required":["a","d"],)"
      R"("$defs":{"d":{"type":"object","properties":{"n":{"type":"boolean"}}}}}}},)"
      R"({"type":"function","function":{"name":"g","parameters":{"type":"object","additionalProperties":{"format":"date"}}}}])";
  const std::string talk = R"({"model":"m","max_tokens":8,"seed":1,"messages":[{"role":"user","content":"a"}],)";
  std::vector<std::string> out = {
      "0" + talk +
          R"("temperature":1.5,"logit_bias":{"5":2},"stop":["b","c"],"logprobs":true,"top_logprobs":2,"prompt_logprobs":1})",
      "0" + talk + tools + R"(,"tool_choice":"required","parallel_tool_calls":false})",
      "0" + talk + tools + R"(,"tool_choice":"auto","stream":true,"stream_options":{"include_usage":true}})",
      "0" + talk + tools +
          R"(,"structured_outputs":{"choice":["<call=f><key=a>5</key><key=z>[1]</key></call> and"]},"max_tokens":60})",
      "0" + talk +
          R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":)"
          R"({"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}}}})",
      R"(0{"model":"m","max_tokens":2,"messages":[{"role":"system","content":[{"type":"text","text":"s"}]},{"role":"assistant",)"
      R"("content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1,\"b\":\"x\"}"}}]},)"
      R"({"role":"tool","tool_call_id":"1","content":"t"}],"chat_template_kwargs":{"x":[1]}})",
      R"(1{"model":"m","prompt":["a",[5,6]],"max_tokens":3,"n":2,"echo":true,"logprobs":2,"best_of":2,"top_k":4,"min_p":0.1})",
      R"(1{"model":"m","prompt":[5,6,7],"max_tokens":5,"stream":true,"ignore_eos":true,"priority":-3,"guided_regex":"[a-c]{2,4}"})",
      R"(2{"model":"m","max_output_tokens":3,"instructions":"i","input":[{"role":"user","content":[{"type":"input_text","text":"a"}]}],)"
      R"("reasoning":{"effort":"low"},"text":{"format":{"type":"text"}}})",
      R"(3{"model":"m","max_tokens":3,"system":"s","messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],)"
      R"("tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"any"},"stop_sequences":["x"],"stream":true})",
      R"(4{"model":"m","messages":[{"role":"user","content":"a"}]})",
      R"(5{"model":"m","input":["a",[5,6]],"pooling":"mean","dimensions":4,"encoding_format":"base64"})",
      R"(6{"model":"m","messages":[{"role":"user","content":"a"}],"return_token_strs":true})",
      R"(7{"model":"m","tokens":[5,6,7]})"};
  const char* raw = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\nx-request-id: a\r\nconnection: close\r\n\r\n";
  out.push_back(std::string("r") + raw);
  out.push_back("r" + request_of("/tokenize", R"({"model":"m","prompt":"a"})"));
  out.push_back(
      "rPOST /tokenize HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\nexpect: "
      "100-continue\r\n\r\n"
      "1b\r\n{\"model\":\"m\",\"prompt\":\"ab\"}\r\n0\r\n\r\n");
  return out;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool raw = data[0] == 'r';
  const char* path = paths[data[0] >= '0' && data[0] <= '8' ? data[0] - '0' : data[0] % std::size(paths)];
  bool closed = false;
  // A seed is answered; what is not one may be the beginning of more.
  static const std::vector<std::string> right = plait::fuzz::seeds();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const bool whole = std::find(right.begin(), right.end(), input) != right.end();
  const std::string answer = sent_back(raw ? std::string(text) : request_of(path, text),
                                       raw && !whole ? Clock::duration(glance) : Clock::duration(patience), closed);
  const int status = status_of(answer);
  if (raw) {
    if (!answer.empty() && status == 0 && !text.starts_with("PRI "))
      broken("what comes back is no answer: " + answer);
  } else if (!closed || status == 0) {
    broken("no answer to a body for " + std::string(path) + ": " + answer);
  }
  if (status >= 500 && status != 503) broken(answer);
  if (status == 200) ++plait::fuzz::accepted;
  else plait::fuzz::refusal = answer;
  return 0;
}
