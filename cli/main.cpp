// SPDX-License-Identifier: Apache-2.0
// penstock: the process around a command line.
#include "base/last_words.hpp"
#include "cli/command_line.hpp"

#include <csignal>

int main(int argc, char** argv) {
  penstock::begin_program("penstock");
  std::signal(SIGPIPE, SIG_DFL);  // `penstock ... | head` ends quietly
  return penstock::run_command_line({argv + 1, argv + argc});
}
