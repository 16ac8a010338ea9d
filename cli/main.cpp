// penstock: the process around a command line.
#include "base/last_words.hpp"
#include "base/say.hpp"
#include "cli/command_line.hpp"

#include <csignal>

int main(int argc, char** argv) {
  penstock::keep_standard_streams();
  penstock::say_what_nobody_catches("penstock");
  std::signal(SIGPIPE, SIG_DFL);  // `penstock ... | head` ends quietly
  return penstock::run_command_line({argv + 1, argv + argc});
}
