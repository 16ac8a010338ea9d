// The options that a shell script gives to the programs it starts, as far as they can be told
// without running it: `--name value`, `--name=value`, `--name`, in commands, arrays and quoted
// variables.
//
// Assignments are followed (NAME=8, ${NAME:-8}, $((A * B))), functions, loops and conditions are
// not: their words count as if they ran once. #SBATCH lines count, other comments do not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct ScriptOption {
  std::string name;                 ///< without dashes, '_' as '-'
  std::vector<std::string> values;  ///< words up to the next option or command; "$NAME" if unknown
  int line = 0;                     ///< 1-based
};

/// In the order of the text. An option that stands several times is there several times.
std::vector<ScriptOption> script_options(std::string_view text);

}  // namespace penstock
