#include "core/train/timeline_file.h"

#include <cstdio>

#include "core/base/text.h"
#include "core/base/file_writer.h"

namespace plait {

void write_timeline(const std::string& path, const Timeline& timeline, int64_t step) {
  FileWriter file(path, FileWriter::At::whole);
  if (path.ends_with(".svg")) {
    file.write(timeline_svg(timeline));
  } else {
    char line[100];
    std::snprintf(line, sizeof line, "step %lld: %.6f s, bubble %.1f %%\n", static_cast<long long>(step),
                  timeline.makespan_s, 100 * timeline.bubble());
    file.write(line);
    file.write(timeline_text(timeline));
  }
  file.finish();
}

}  // namespace plait
