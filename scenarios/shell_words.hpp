// SPDX-License-Identifier: Apache-2.0
// The options that a shell script gives to the program it starts, as far as they can be told
// without running it: `--name value`, `--name=value`, `--name`. A small interpreter follows the
// script (shell_machine.hpp) as bash would; what it cannot evaluate as bash would is unknown, and
// says which variable would tell it.
//
// #SBATCH lines count, as do the options of srun and torchrun before the program's own, and give
// SLURM_NNODES and the like. Files that the script sources are read where the script came from a
// file, relative to its folder.
#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <functional>
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
  std::vector<std::string> asked = {};  ///< variables that tell its values and condition
  bool bundle = false;    ///< a word that may be any options: its name is as the script writes it
  Diagnostic place = {};  ///< where it stands
};

/// What surrounds a script. What a variable has here stays so, whatever the script assigns, unless
/// that is computed from itself.
struct ScriptSurroundings : std::map<std::string, std::string> {
  using map::map;
  std::string file;        ///< the script's own; empty: no file is read
  std::size_t launch = 0;  ///< which of several, from 1; 0: the first
};

struct ScriptLaunch {
  std::vector<ScriptOption> options;
  std::string command;             ///< its words
  std::string none;                ///< why there is no launch, where that is so and can be told
  std::vector<std::string> notes;  ///< which of several launches it is, options that are none's
  std::map<std::string, std::string> written;   ///< files that the script writes, by their names
  std::map<std::string, std::string> exported;  ///< NVTE_* variables that the launch gets
};

/// The options of the launch that `counts`, in their order; one that stands several times is there
/// several times. Of several the first whose command `trains` is taken. Throws InputError where
/// bash would not take the script, files to read are not there, there is no such launch, or
/// `launch` is beyond those there are.
ScriptLaunch script_launch(std::string_view text, const std::string& origin,
                           const ScriptSurroundings& surroundings,
                           const std::function<bool(const std::string& name)>& counts,
                           const std::function<bool(const std::string& command)>& trains = {});

/// Of the first command with options; none where there is none.
std::vector<ScriptOption> script_options(std::string_view text,
                                         const ScriptSurroundings& surroundings = {});

}  // namespace penstock
