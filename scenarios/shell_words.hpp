// The options that a shell script gives to the programs it starts, as far as they can be told
// without running it: `--name value`, `--name=value`, `--name`, in commands, arrays and quoted
// variables.
//
// Assignments are followed (NAME=8, ${NAME:-8}, $((A * B))), and so are conditions where all in
// them is known: `if [ "$A" = 1 ]; then ... else ... fi`, `[ "$A" ] && ...`. One that is not known
// is taken as true, and its options have it. Functions and loops count as if they ran once, the
// branches of a `case` as if each did. #SBATCH lines count, and give SLURM_NNODES and the like;
// other comments do not.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct ScriptOption {
  std::string name;                 ///< without dashes, '_' as '-'
  std::vector<std::string> values;  ///< words up to the next option or command; "$NAME" if unknown
  int line = 0;                     ///< 1-based
  std::string condition = {};       ///< under which it stands, where that is not known
  std::string shown = {};           ///< how its file spells it, where that is another name
};

using ShellVariables = std::map<std::string, std::string>;

/// In the order of the text. An option that stands several times is there several times. What is
/// `defined` stays so, whatever the script assigns.
std::vector<ScriptOption> script_options(std::string_view text, const ShellVariables& defined = {});

}  // namespace penstock
