// SPDX-License-Identifier: Apache-2.0
#include "base/progress.hpp"

#include "base/say.hpp"
#include "base/terminal.hpp"
#include "base/units.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace penstock {
namespace {

/// Cut to the terminal, since a line that wraps cannot be drawn over.
std::string cut_to_terminal(std::string text) {
  const std::size_t known = terminal_width(STDERR_FILENO);
  const std::size_t width = known > 0 ? known : 80;
  while (display_width(text) >= width) text.pop_back();
  return text;
}

}  // namespace

Progress::Progress(std::string what, std::int64_t total) : what_(std::move(what)), total_(total) {
  const char* term = std::getenv("TERM");
  terminal_ = isatty(STDERR_FILENO) != 0 && term != nullptr && std::string_view(term) != "dumb";
}

Progress::~Progress() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void Progress::update(std::int64_t done, const std::string& note) {
  if (!terminal_) return;
  const auto now = Clock::now();
  using namespace std::chrono_literals;
  if (now - started_ < 500ms || now - last_ < 100ms) return;
  last_ = now;
  drawn_ = true;
  const double elapsed = std::chrono::duration<double>(now - started_).count();
  const double left =
      done > 0 ? elapsed * static_cast<double>(total_ - done) / static_cast<double>(done) : 0;
  const double share = 100.0 * static_cast<double>(done) / static_cast<double>(total_);
  const std::string line =
      fmt::format("{} {}/{} ({:.0f} %), {} left{}{}", what_, format_count(done),
                  format_count(total_), share, format_time(left), note.empty() ? "" : "; ", note);
  std::fputs(("\r\x1b[K" + cut_to_terminal(without_controls(line))).c_str(), stderr);
}

bool colour_allowed(int file_descriptor) {
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(file_descriptor) != 0 && (no_colour == nullptr || *no_colour == '\0');
}

}  // namespace penstock
