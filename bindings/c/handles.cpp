#include "bindings/c/handles.h"

#include <deque>
#include <mutex>

namespace plait::c_api {
namespace {

// Bits of a handle, from the lowest: 28 slot + 1 (so that none is NULL), 4 kind, 32 generation. At a million handles
// per second from one slot a stale handle may be mistaken for a live one after more than an hour, and slots are
// reused round-robin.
constexpr int slot_bits = 28, kind_bits = 4;

struct Slot {
  std::shared_ptr<void> object;  ///< null: free
  uint32_t generation = 0;
  Kind kind{};
};

struct Table {
  std::mutex mutex;
  std::deque<Slot> slots;
  std::deque<uint32_t> free;
};

// The library's only global state, so that handles are recognised after their objects are released. It is never
// destroyed, so that objects which a host has not released at exit do not join threads from there.
Table& table() {
  static Table& instance = *new Table;
  return instance;
}

constexpr std::string_view kind_names[] = {"?",       "options", "tensor", "tokenizer", "model",  "generator",
                                           "request", "session", "world",  "trainer",   "mailbox"};

void* pack(uint32_t slot, Kind kind, uint32_t generation) {
  uint64_t bits = (uint64_t{slot} + 1) | (static_cast<uint64_t>(kind) << slot_bits) |
                  (static_cast<uint64_t>(generation) << (slot_bits + kind_bits));
  return reinterpret_cast<void*>(static_cast<uintptr_t>(bits));
}

/// The slot of a live handle; the table must be locked.
uint32_t slot_of(Table& handles, Kind kind, const void* handle) {
  auto name = kind_names[static_cast<size_t>(kind)];
  if (!handle) throw Error(Code::invalid_argument, cat("the ", name, " is NULL"));
  uint64_t bits = reinterpret_cast<uintptr_t>(handle);
  uint64_t slot = (bits & ((uint64_t{1} << slot_bits) - 1)) - 1;
  auto said = static_cast<Kind>((bits >> slot_bits) & ((1u << kind_bits) - 1));
  auto generation = static_cast<uint32_t>(bits >> (slot_bits + kind_bits));
  if (said != kind || slot >= handles.slots.size() || generation > handles.slots[slot].generation) {
    throw Error(Code::invalid_argument, cat("what was passed as ", name, " is no handle of that kind"));
  }
  const Slot& found = handles.slots[slot];
  if (generation != found.generation || !found.object || found.kind != kind) {
    throw Error(Code::closed, cat("the ", name, " was released before"));
  }
  return static_cast<uint32_t>(slot);
}

}  // namespace

void* add_handle(Kind kind, std::shared_ptr<void> object) {
  PLAIT_ASSERT(object);
  Table& handles = table();
  std::lock_guard lock(handles.mutex);
  uint32_t slot = 0;
  if (!handles.free.empty()) {
    slot = handles.free.front();
    handles.free.pop_front();
  } else {
    if (handles.slots.size() + 1 >= (size_t{1} << slot_bits)) throw Error(Code::out_of_memory, "too many handles");
    slot = static_cast<uint32_t>(handles.slots.size());
    handles.slots.emplace_back();
  }
  Slot& taken = handles.slots[slot];
  taken.object = std::move(object);
  taken.kind = kind;
  return pack(slot, kind, taken.generation);
}

std::shared_ptr<void> find_handle(Kind kind, const void* handle) {
  Table& handles = table();
  std::lock_guard lock(handles.mutex);
  return handles.slots[slot_of(handles, kind, handle)].object;
}

void drop_handle(Kind kind, const void* handle) {
  if (!handle) return;
  std::shared_ptr<void> dying;  // outlives the lock: its destructor takes time, and may release others
  Table& handles = table();
  std::lock_guard lock(handles.mutex);
  uint32_t slot = slot_of(handles, kind, handle);
  handles.free.push_back(slot);  // first, since it may fail
  dying = std::move(handles.slots[slot].object);
  ++handles.slots[slot].generation;
}

}  // namespace plait::c_api
