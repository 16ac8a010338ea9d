#include "base/progress.hpp"

#include "base/units.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace penstock {

Progress::Progress(std::string what, std::int64_t total) : what_(std::move(what)), total_(total) {
  const char* term = std::getenv("TERM");
  terminal_ = isatty(STDERR_FILENO) != 0 && term != nullptr && std::string_view(term) != "dumb";
}

Progress::~Progress() {
  if (drawn_) fmt::print(stderr, "\r\x1b[K");
}

void Progress::update(std::int64_t done) {
  if (!terminal_) return;
  const auto now = Clock::now();
  using namespace std::chrono_literals;
  if (now - started_ < 500ms || now - last_ < 100ms) return;
  last_ = now;
  drawn_ = true;
  const double elapsed = std::chrono::duration<double>(now - started_).count();
  const double left =
      done > 0 ? elapsed * static_cast<double>(total_ - done) / static_cast<double>(done) : 0;
  fmt::print(stderr, "\r\x1b[K{} {}/{} ({:.0f} %), {} left", what_, format_count(done),
             format_count(total_), 100.0 * static_cast<double>(done) / static_cast<double>(total_),
             format_time(left));
  std::fflush(stderr);
}

bool colour_allowed(int file_descriptor) {
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(file_descriptor) != 0 && (no_colour == nullptr || *no_colour == '\0');
}

}  // namespace penstock
