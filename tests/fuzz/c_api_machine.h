#pragma once
// The machine that a sequence of calls of the C interface runs on: where its arguments come from, and where handles
// are.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/c/plait.h"
#include "tests/fuzz/fuzz.h"

namespace plait::fuzz {

constexpr int slots = 4;
enum Kind { options, tensor, tokenizer, model, generator, request, session, world, trainer, mailbox, kinds };

[[noreturn]] inline void broken(const char* call, const char* promise) {
  std::fprintf(stderr, "%s: %s (%s)\n", call, promise, plait_last_error());
  std::abort();
}

inline plait_status checked(const char* call, plait_status status) {
  if (status < PLAIT_OK || status >= PLAIT_INTERNAL) broken(call, "the fault is Plait's");
  if (status != PLAIT_OK && plait_last_error()[0] == '\0') broken(call, "it has no message");
  return status;
}

inline plait_status release(Kind kind, void* handle) {
  switch (kind) {
    case options: return plait_options_release(static_cast<plait_options*>(handle));
    case tensor: return plait_tensor_release(static_cast<plait_tensor*>(handle));
    case tokenizer: return plait_tokenizer_release(static_cast<plait_tokenizer*>(handle));
    case model: return plait_model_release(static_cast<plait_model*>(handle));
    case generator: return plait_generator_release(static_cast<plait_generator*>(handle));
    case request: return plait_request_release(static_cast<plait_request*>(handle));
    case session: return plait_session_release(static_cast<plait_session*>(handle));
    case world: return plait_world_release(static_cast<plait_world*>(handle));
    case mailbox: return plait_mailbox_release(static_cast<plait_mailbox*>(handle));
    default: return plait_trainer_release(static_cast<plait_trainer*>(handle));
  }
}

/// Reads all of it: AddressSanitizer looks.
inline void read_through(const void* data, int64_t bytes) {
  volatile unsigned char sum = 0;
  for (int64_t i = 0; i < bytes; ++i)
    sum = static_cast<unsigned char>(sum + static_cast<const unsigned char*>(data)[i]);
}

/// What the threads of an input share.
struct Pool {
  std::array<std::array<std::atomic<void*>, slots>, kinds> handles{};
  std::mutex mutex;
  std::vector<std::pair<Kind, void*>> made;
  std::atomic<int> large{
      3};  ///< models, generators, sessions, trainers that may still be made: each takes milliseconds
};

/// A program that runs. Behind its end everything is 0.
class Machine {
 public:
  Machine(Pool& pool, const uint8_t* data, size_t size, bool alone)
      : alone(alone), pool_(pool), data_(data), end_(data + size) {}

  bool ended() const { return data_ == end_; }
  uint8_t byte() { return ended() ? 0 : *data_++; }
  template <class T>
  T one_of(std::initializer_list<T> all) {
    return all.begin()[byte() % all.size()];
  }
  int32_t flag() { return byte() % 3; }
  int32_t id() { return byte() * 3 - 1; }
  int64_t timeout() { return one_of<int64_t>({0, 0, 1, 3}); }

  /// The input's own, or sometimes `usual`. Like everything that is handed out it lasts as long as the machine.
  const char* text(const char* usual = nullptr) {
    const int size = byte() % 16;
    std::string own(static_cast<size_t>(size), '\0');
    for (char& c : own) c = static_cast<char>(byte());
    if (size == 0 && usual) own = usual;
    size_ = own.size();
    return keep(own.c_str(), own.size() + 1);
  }
  const int32_t* ids() {
    std::vector<int32_t> own(static_cast<size_t>(byte() % 12));
    for (int32_t& one : own) one = byte() * 2 - (one_of({0, 0, 0, 0, 0, 0, 0, 512}));
    size_ = own.size();
    return keep(own.data(), own.size());
  }
  /// Of the text or ids before: mostly theirs, but also others that are allowed, or have to be refused.
  int64_t length() {
    const int choice = byte() % 16;
    return choice < 13 ? static_cast<int64_t>(size_) : choice == 13 ? 0 : choice == 14 ? -2 : int64_t{-1} << 62;
  }

  /// Where a call puts something.
  template <class T>
  T* out() {
    return byte() == 255 ? nullptr : keep<T>(nullptr, 1);
  }
  /// The same for structs that contain their size, sometimes a wrong one; no byte more is there.
  template <class T>
  T* filled() {
    const int64_t size = byte() < 240 ? static_cast<int64_t>(sizeof(T)) : byte();
    auto* out = keep<char>(nullptr, static_cast<size_t>(std::max<int64_t>(size, 8)));
    std::memcpy(out, &size, sizeof size);
    return reinterpret_cast<T*>(out);
  }

  /// A handle that was made before, perhaps released since; none; one of another kind; a number that never was one.
  template <class Handle>
  Handle* handle(Kind kind) {
    const int choice = byte();
    void* out = nullptr;
    if (choice < 200) out = pool_.handles[kind][choice % slots];
    else if (choice < 225) out = nullptr;
    else if (choice < 250) out = pool_.handles[choice % kinds][choice % slots];
    else out = reinterpret_cast<void*>(static_cast<uintptr_t>(choice) << (choice % 60));
    return static_cast<Handle*>(out);
  }
  plait_options* options_() { return handle<plait_options>(options); }
  plait_tensor* tensor_() { return handle<plait_tensor>(tensor); }
  plait_tokenizer* tokenizer_() { return handle<plait_tokenizer>(tokenizer); }
  plait_model* model_() { return handle<plait_model>(model); }
  plait_generator* generator_() { return handle<plait_generator>(generator); }
  plait_request* request_() { return handle<plait_request>(request); }
  plait_request* parent_() { return byte() < 192 ? nullptr : request_(); }
  plait_session* session_() { return handle<plait_session>(session); }
  plait_world* world_() { return handle<plait_world>(world); }
  plait_mailbox* mailbox_() { return handle<plait_mailbox>(mailbox); }
  plait_trainer* trainer_() { return handle<plait_trainer>(trainer); }

  /// Calls what makes a handle unless it fails, and keeps that.
  template <class Handle, class Function, class... Arguments>
  void make(Kind kind, const char* name, Function function, std::tuple<Arguments...> arguments) {
    auto* made = reinterpret_cast<Handle*>(uintptr_t{1});
    Handle** out = byte() == 255 ? nullptr : &made;
    const int slot = byte() % slots;
    const bool large = kind == model || kind == generator || kind == session || kind == trainer;
    if (large && --pool_.large < 0) return;
    const plait_status status =
        checked(name, std::apply([&](auto... all) { return function(all..., out); }, arguments));
    if (!out && status == PLAIT_OK) broken(name, "it had nowhere to put its result");
    if (out && (status == PLAIT_OK) != (made != nullptr)) broken(name, "it fails with a result, or has none");
    if (!out || !made) return;
    std::lock_guard lock(pool_.mutex);
    pool_.made.emplace_back(kind, made);
    pool_.handles[kind][static_cast<size_t>(slot)] = made;
  }

  const bool alone;  ///< no other thread calls meanwhile: nothing that is read is released

 private:
  /// Memory of that size exactly, so that what reads or writes after it is seen.
  template <class T>
  T* keep(const T* from, size_t count) {
    memory_.push_back(std::make_unique<char[]>(std::max<size_t>(count, 1) * sizeof(T)));
    if (from) std::memcpy(memory_.back().get(), from, count * sizeof(T));
    return reinterpret_cast<T*>(memory_.back().get());
  }

  Pool& pool_;
  const uint8_t* data_;
  const uint8_t* end_;
  size_t size_ = 0;
  std::vector<std::unique_ptr<char[]>> memory_;
};

}  // namespace plait::fuzz
