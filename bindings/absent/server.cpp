// In place of serving/http.
#include "bindings/c/plait.h"
#include "bindings/server/plait_server.h"

namespace {

plait_status absent() {
  return plait_fail(PLAIT_UNSUPPORTED, "this library was built without the server",
                    "build it with -DPLAIT_SERVER=ON, as ./run build does");
}

}  // namespace

plait_status plait_server_create(plait_options*, plait_server** out) {
  if (out) *out = nullptr;
  return absent();
}
plait_status plait_server_add(plait_server*, const char*, plait_model*, plait_generator*) { return absent(); }
plait_status plait_server_address(plait_server*, plait_tensor** text) {
  if (text) *text = nullptr;
  return absent();
}
plait_status plait_server_drain(plait_server*, int64_t) { return absent(); }
plait_status plait_server_statistics(plait_server*, plait_server_stats*) { return absent(); }
plait_status plait_server_release(plait_server* server) { return server ? absent() : PLAIT_OK; }
